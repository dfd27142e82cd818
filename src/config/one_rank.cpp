#include "config/one_rank.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 5> kSizes{"tensor", "context", "pipeline", "virtual_stages",
                                                 "expert"};

}  // namespace

bool accepted_on_one_rank(const Setting& setting) {
  if (std::ranges::find(kOneRankSections, setting.section) == kOneRankSections.end()) return false;
  if (setting.key.empty()) return true;
  const bool is_size =
      setting.section == "parallel" && std::ranges::find(kSizes, setting.key) != kSizes.end();
  if (is_size && setting.value == ConfigValue(int64_t{1})) return true;
  throw Error(
      "{}: {}.{} = {}: this build runs one rank; of [parallel] it takes sizes of 1 (tensor, "
      "context, pipeline, virtual_stages, expert), of [shard] nothing: leave the key out",
      setting.where, setting.section, setting.key, value_text(setting.value));
}

}  // namespace tessera
