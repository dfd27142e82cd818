// read_config() reads the keys that describe the model into a ModelConfig: the sizes, the experts
// and the rotary embedding (ZAYA1 has a form of its own for both). Then it refuses keys of foreign
// layers and unknown keys, and writes the notes on training. ConfigFields remembers which keys were
// read.

#include "checkpoint/hugging_face/read_config.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "checkpoint/hugging_face/refused_keys.h"
#include "checkpoint/hugging_face/rotary_fields.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "checkpoint/hugging_face/zaya_fields.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr int kConfigDepth = 16;  // levels of nesting; keys that Tessera ignores may hold objects
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 16;
constexpr double kInitializerRange = 0.02;  // the default of every class

/// Returns the architecture that "architectures" names, or that model_type names if "architectures"
/// is left out.
const Architecture& read_architecture(ConfigFields& fields) {
  std::string name;
  if (const Json* list = fields.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
      fields.refuse("architectures", "a list of one name");
    }
    name = (*list)[0].get<std::string>();
  }
  const std::string model_type = fields.text("model_type").value_or("");
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    known.emplace_back(architecture.name);
    if (name.empty() && architecture.model_type() == model_type) name = architecture.name;
  }
  const Architecture* found = find_architecture(name);
  if (found == nullptr) {
    throw Error("{}: the architecture {} (model_type {}) is not known; known are {}",
                fields.origin(), in_quotes(name), in_quotes(model_type), join(known, ", "));
  }
  if (!model_type.empty() && model_type != found->model_type()) {
    throw Error("{}: the architecture {} contradicts model_type {}; expected {}", fields.origin(),
                name, in_quotes(model_type), found->model_type());
  }
  return *found;
}

void read_sizes(ConfigFields& fields, const Architecture& architecture, ModelConfig& model) {
  model.vocabulary_size = fields.required_size("vocab_size", 1, kLargestSize);
  model.hidden_size = fields.required_size("hidden_size", 1, kLargestSize);
  model.layers = fields.required_size("num_hidden_layers", 1, kMostLayers);
  model.heads = fields.required_size("num_attention_heads", 1, kMostHeads);
  const int64_t kv_heads = architecture.kv_heads > 0 ? architecture.kv_heads : model.heads;
  model.kv_heads = fields.size("num_key_value_heads", 1, kMostHeads).value_or(kv_heads);
  model.head_dim = fields.size("head_dim", 1, kLargestSize).value_or(architecture.head_dim);
  model.max_context =
      fields.size("max_position_embeddings", 1, kLargestSize).value_or(architecture.max_context);
  const std::string& origin = fields.origin();
  if (model.head_dim == 0 && model.hidden_size % model.heads != 0) {
    throw Error("{}: num_attention_heads ({}) does not divide hidden_size ({})", origin,
                model.heads, model.hidden_size);
  }
  if (model.heads % model.kv_heads != 0) {
    throw Error("{}: num_key_value_heads ({}{}) does not divide num_attention_heads ({})", origin,
                model.kv_heads, fields.find("num_key_value_heads") == nullptr ? ", left out" : "",
                model.heads);
  }
  const int64_t even = model.hidden_size / model.heads;
  if (!architecture.chooses_head_dim && model.head_size() != even) {
    throw Error("{}: head_dim is {}, but {} has heads of hidden_size / num_attention_heads = {}",
                origin, model.head_dim, architecture.name, even);
  }
  if (model.head_size() * model.heads > kLargestSize) {
    throw Error("{}: num_attention_heads ({}) * head_dim ({}) is above {}", origin, model.heads,
                model.head_size(), kLargestSize);
  }
  // 0 stands for the derived size, so that equal models have equal configurations.
  if (model.head_dim * model.heads == model.hidden_size) model.head_dim = 0;
}

void read_experts(ConfigFields& fields, const Architecture& architecture, ModelConfig& model) {
  const int64_t intermediate_size = fields.required_size("intermediate_size", 1, kLargestSize);
  if (!architecture.mixture()) {
    model.feed_forward_size = intermediate_size;
    return;
  }
  model.expert_size = intermediate_size;
  const std::string key(architecture.experts_key);
  model.experts = fields.required_size(key, 1, kMostExperts);
  // Some files have both names of the number of experts.
  const char* other_key = key == "num_experts" ? "num_local_experts" : "num_experts";
  if (const auto second = fields.size(other_key, 1, kMostExperts);
      second && *second != model.experts) {
    throw Error("{}: {} is {} and {} is {}; they are the same number", fields.origin(), key,
                model.experts, other_key, *second);
  }
  model.experts_per_token = fields.required_size("num_experts_per_tok", 1, kMostExperts);
  if (model.experts_per_token > model.experts) {
    throw Error("{}: num_experts_per_tok ({}) is larger than {} ({})", fields.origin(),
                model.experts_per_token, key, model.experts);
  }
  if (architecture.family == Family::olmoe) {
    model.renormalise_weights = fields.flag("norm_topk_prob", false);
  }
  model.balance_coefficient =
      fields.number("router_aux_loss_coef", 0).value_or(architecture.balance_coefficient);
  model.balance_form = BalanceForm::pooled;  // the library pools the tokens of all layers
  model.router_z_coefficient = 0;            // the library does not have this loss
}

constexpr const char* kDropouts[] = {"attention_dropout", "hidden_dropout", "resid_dropout",
                                     "embedding_dropout", "router_jitter_noise"};

/// Returns the row of the embedding that the library does not train; -1: none. It is the row of
/// pad_token_id. If the key is left out, the default of the architecture counts; null means none,
/// and -1 means the last row.
int64_t frozen_row(ConfigFields& fields, const Architecture& architecture,
                   const ModelConfig& model) {
  const Json* id = fields.find("pad_token_id");
  if (id == nullptr) {
    return fields.has("pad_token_id")
               ? -1
               : default_token_id(architecture, "pad_token_id", model.vocabulary_size);
  }
  if (!id->is_number_integer()) return -1;  // a list, which names no row
  return *id == -1 ? model.vocabulary_size - 1 : id->get<int64_t>();
}

/// Returns notes on a config.json, one sentence each. They concern settings that do not change the
/// model's results but with which transformers would train it differently than Tessera, and parts
/// that Tessera does not read, such as code that comes with the model.
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
  if (architecture.mixture() && !balances && model.balance_coefficient > 0) {
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
  if (const Json* window = fields.find("sliding_window")) {
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

}  // namespace

ReadConfig read_config(std::string_view text, const std::string& origin,
                       std::span<const std::string> accepted_keys) {
  const Json json = parse_strict_json(text, origin, kConfigDepth);
  ConfigFields fields(json, origin);
  ReadConfig result;
  result.architecture = &read_architecture(fields);
  const Architecture& architecture = *result.architecture;
  ModelConfig& model = result.model;
  model = family_preset(architecture.family);

  read_sizes(fields, architecture, model);
  if (architecture.family == Family::zaya) {
    read_zaya(fields, model);
  } else {
    read_experts(fields, architecture, model);
    read_rotary(fields, architecture, model);
  }
  model.tied_head = fields.flag("tie_word_embeddings", architecture.tied_head);
  // OLMo's class has a fixed epsilon and no key.
  if (architecture.family != Family::olmo) {
    model.norm_epsilon =
        fields.number_above_zero("rms_norm_eps").value_or(architecture.norm_epsilon);
  }
  // A clip_qkv of 0 makes the library clip to 0, so it is an error here. In Tessera 0 means no
  // limit, as null does in the library.
  if (!architecture.chooses_head_dim)
    model.clip_qkv = fields.number_above_zero("clip_qkv").value_or(0);
  const double deviation = fields.number("initializer_range", 0).value_or(kInitializerRange);
  if (deviation > 0) model.initialization_deviation = deviation;
  refuse_other_layers(fields, architecture, model);
  check_token_ids(fields, model.vocabulary_size);
  result.notes = training_notes(fields, architecture, model);
  refuse_unknown_keys(fields, accepted_keys, result.notes);
  try {
    validate(model);
  } catch (const Error& error) {
    throw Error("{}: {}", origin, error.what());
  }
  return result;
}

}  // namespace tessera::hugging_face
