#include "checkpoint/hugging_face/token_ids.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"

namespace tessera::hugging_face {
namespace {

constexpr int kDeepestIds = 32;  // levels of nesting; other keys of the file may hold objects

bool means_no_token(const nlohmann::json& id) { return id.is_number_integer() && id == -1; }

bool is_below(const nlohmann::json& id, int64_t end) {
  return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(end);
}

/// Returns whether `ids` is one id or a list of at least one, each in [0, end).
bool are_token_ids(const nlohmann::json& ids, int64_t end) {
  if (!ids.is_array()) return is_below(ids, end);
  return !ids.empty() &&
         std::ranges::all_of(ids, [&](const nlohmann::json& id) { return is_below(id, end); });
}

}  // namespace

void check_token_ids(ConfigFields& fields, int64_t vocabulary_size) {
  for (const char* key : kTokenIdKeys) {
    const nlohmann::json* ids = fields.find(key);
    if (ids == nullptr || means_no_token(*ids) || are_token_ids(*ids, vocabulary_size)) continue;
    fields.refuse(
        key, fmt::format(
                 "null or -1 (none), a token's number or a list of them, from 0 to {} (vocab_size "
                 "is {})",
                 vocabulary_size - 1, vocabulary_size));
  }
}

int64_t default_token_id(const Architecture& architecture, std::string_view key,
                         int64_t vocabulary_size) {
  const auto index = std::ranges::find(kTokenIdKeys, key) - kTokenIdKeys.begin();
  const int64_t id = architecture.tokens.at(static_cast<size_t>(index));
  return id < vocabulary_size ? id : -1;
}

std::vector<int32_t> read_end_tokens(std::string_view text, const std::string& origin,
                                     int64_t default_token) {
  const nlohmann::json json = parse_strict_json(text, origin, kDeepestIds);
  ConfigFields fields(json, origin);
  const nlohmann::json* ids = fields.find("eos_token_id");
  if (default_token >= 0 && !fields.has("eos_token_id"))
    return {static_cast<int32_t>(default_token)};
  if (ids == nullptr || means_no_token(*ids)) return {};
  if (!are_token_ids(*ids, std::numeric_limits<int32_t>::max())) {
    fields.refuse("eos_token_id", "null or -1 (none), a token's number or a list of them");
  }
  if (!ids->is_array()) return {ids->get<int32_t>()};
  return ids->get<std::vector<int32_t>>();
}

}  // namespace tessera::hugging_face
