#include "checkpoint/hugging_face/training_notes.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "checkpoint/hugging_face/token_ids.h"

namespace tessera::hugging_face {
namespace {

constexpr std::array kDropouts{"attention_dropout", "hidden_dropout", "resid_dropout",
                               "embedding_dropout", "router_jitter_noise"};

/// Returns the row of the embedding that the library does not train; -1: none. If the key is left
/// out, the class's own value counts; null means none, and -1 counts from the end.
int64_t frozen_row(ConfigFields& fields, const Architecture& architecture,
                   const ModelConfig& model) {
  const nlohmann::json* id = fields.find("pad_token_id");
  if (id == nullptr) {
    return fields.has("pad_token_id")
               ? -1
               : default_token_id(architecture, "pad_token_id", model.vocabulary_size);
  }
  if (!id->is_number_integer()) return -1;  // a list, which names no row
  return *id == -1 ? model.vocabulary_size - 1 : id->get<int64_t>();
}

}  // namespace

std::vector<std::string> training_notes(ConfigFields& fields, const Architecture& architecture,
                                        const ModelConfig& model) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& sentence) {
    notes.push_back(fields.origin() + ": " + sentence);
  };
  for (const char* key : kDropouts) {
    if (fields.number(key, 0).value_or(0) == 0) continue;
    note(fmt::format("'{}' is {}; Tessera trains without it", key, fields.find(key)->dump()));
  }
  const bool balances = fields.flag("output_router_logits", false);
  if (architecture.mixture && !balances && model.balance_coefficient > 0) {
    note(fmt::format(
        "'output_router_logits' is false, so that transformers trains without the load-balance "
        "loss; Tessera trains with it, by the router_aux_loss_coef {} "
        "(model.balance_coefficient = 0 leaves it out)",
        model.balance_coefficient));
  }
  if (const int64_t row = frozen_row(fields, architecture, model); row >= 0) {
    note(fmt::format(
        "transformers does not train the embedding of the token {} ('pad_token_id'{}); Tessera "
        "trains it as any other",
        row, fields.has("pad_token_id") ? "" : ", by default"));
  }
  if (const nlohmann::json* window = fields.find("sliding_window")) {
    note(fmt::format(
        "'sliding_window' is {}, which no sequence of max_position_embeddings ({}) reaches; an "
        "export keeps it, unless model.max_context was raised above it",
        window->dump(), model.max_context));
  }
  if (fields.find("auto_map") != nullptr) {
    note(fmt::format(
        "'auto_map' names code of the model's own, which is not read; Tessera computes what the {} "
        "of transformers computes",
        architecture.name));
  }
  return notes;
}

}  // namespace tessera::hugging_face
