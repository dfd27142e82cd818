#include "checkpoint/hugging_face/read_config.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "checkpoint/hugging_face/foreign_layers.h"
#include "checkpoint/hugging_face/known_keys.h"
#include "checkpoint/hugging_face/rotary_fields.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "checkpoint/hugging_face/training_notes.h"
#include "checkpoint/hugging_face/zaya_fields.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr int kConfigDepth = 16;  // of a whole file; its unknown keys may hold anything
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kMostExperts = 1 << 12;
constexpr double kInitializerRange = 0.02;  // of all classes

const Architecture& read_architecture(ConfigFields& fields) {
  std::string name;
  if (const Json* list = fields.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
      fields.refuse("architectures", *list, "a list of one name");
    }
    name = (*list)[0].get<std::string>();
  }
  const std::string model_type = fields.text("model_type").value_or("");
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    known.emplace_back(architecture.name);
    if (name.empty() && architecture.model_type == model_type) name = architecture.name;
  }
  const Architecture* found = find_architecture(name);
  if (found == nullptr) {
    throw Error("{}: the architecture {} (model_type {}) is not known; known are {}",
                fields.origin(), in_quotes(name), in_quotes(model_type), join(known, ", "));
  }
  if (!model_type.empty() && model_type != found->model_type) {
    throw Error("{}: the architecture {} contradicts model_type {}; expected {}", fields.origin(),
                name, in_quotes(model_type), found->model_type);
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
  if (model.head_dim * model.heads == model.hidden_size) model.head_dim = 0;  // the derived size
}

void read_experts(ConfigFields& fields, const Architecture& architecture, ModelConfig& model) {
  const int64_t inner = fields.required_size("intermediate_size", 1, kLargestSize);
  if (!architecture.mixture) {
    model.feed_forward_size = inner;
    return;
  }
  model.expert_size = inner;
  const std::string key(architecture.experts_key);
  model.experts = fields.required_size(key, 1, kMostExperts);
  const char* other = key == "num_experts" ? "num_local_experts" : "num_experts";
  if (const auto again = fields.size(other, 1, kMostExperts); again && *again != model.experts) {
    throw Error("{}: {} is {} and {} is {}; they are the same number", fields.origin(), key,
                model.experts, other, *again);
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
  if (architecture.clips) model.clip_qkv = fields.number_above_zero("clip_qkv").value_or(0);
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
