#include "checkpoint/hugging_face/read_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/hugging_face/config_fields.h"
#include "checkpoint/hugging_face/foreign_layers.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr int kDepth = 16;  // of a whole configuration; its unknown keys may hold anything
constexpr int64_t kMostLayers = 1 << 12;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kMostExperts = 1 << 12;
constexpr int64_t kLargestSize = 1 << 24;

/// Keys that no result depends on, or that the tensors themselves tell.
constexpr std::array<const char*, 30> kWithoutEffect{"_attn_implementation",
                                                     "_name_or_path",
                                                     "auto_map",
                                                     "chunk_size_feed_forward",
                                                     "dtype",
                                                     "finetuning_task",
                                                     "id2label",
                                                     "is_decoder",
                                                     "label2id",
                                                     "output_attentions",
                                                     "output_hidden_states",
                                                     "output_router_logits",
                                                     "prefix",
                                                     "problem_type",
                                                     "pruned_heads",
                                                     "return_dict",
                                                     "sep_token_id",
                                                     "task_specific_params",
                                                     "tie_encoder_decoder",
                                                     "tf_legacy_loss",
                                                     "tokenizer_class",
                                                     "torch_dtype",
                                                     "torchscript",
                                                     "transformers_version",
                                                     "use_bfloat16",
                                                     "use_cache",
                                                     "use_return_dict",
                                                     "vocab_type",
                                                     "unk_token_id",
                                                     "_commit_hash"};

/// Keys of training that the library applies and Tessera does not; they do not change what a
/// trained model computes.
constexpr std::array<const char*, 5> kTrainingOnly{"attention_dropout", "hidden_dropout",
                                                   "resid_dropout", "embedding_dropout",
                                                   "router_jitter_noise"};

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
  const std::string kv_heads = "num_key_value_heads";
  // Where it is left out, Mixtral's class takes 8 and the others take all heads: too easily
  // confused.
  model.kv_heads = architecture.family == "mixtral"
                       ? fields.required_size(kv_heads, 1, kMostHeads)
                       : fields.size(kv_heads, 1, kMostHeads).value_or(model.heads);
  model.head_dim = fields.size("head_dim", 1, kLargestSize).value_or(0);
  model.max_context =
      fields.size("max_position_embeddings", 1, kLargestSize).value_or(architecture.max_context);
  const std::string& origin = fields.origin();
  if (model.head_dim == 0 && model.hidden_size % model.heads != 0) {
    throw Error("{}: num_attention_heads ({}) does not divide hidden_size ({})", origin,
                model.heads, model.hidden_size);
  }
  if (model.heads % model.kv_heads != 0) {
    throw Error("{}: num_key_value_heads ({}) does not divide num_attention_heads ({})", origin,
                model.kv_heads, model.heads);
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
  if (architecture.family == "olmoe") {
    model.renormalise_weights = fields.flag("norm_topk_prob", false);
  }
  model.balance_coefficient =
      fields.number("router_aux_loss_coef", 0).value_or(architecture.balance_coefficient);
  model.balance_form = "pooled";  // the library takes all layers' tokens together
}

/// The rotary embedding as one of config.json's objects describes it.
struct Rope {
  std::optional<double> theta;
  bool scaled = false;  ///< Llama 3.1's way; the numbers below are its own
  double factor = 0;
  double low_frequency_factor = 0;
  double high_frequency_factor = 0;
  int64_t original_context = 0;

  bool same_scaling(const Rope& other) const {
    return scaled == other.scaled && factor == other.factor &&
           low_frequency_factor == other.low_frequency_factor &&
           high_frequency_factor == other.high_frequency_factor &&
           original_context == other.original_context;
  }
};

Rope read_rope(const Json& json, const std::string& origin, int64_t max_context) {
  ConfigFields fields(json, origin);
  Rope rope{.theta = fields.number_above_zero("rope_theta")};
  const auto old_type = fields.text("type");
  const std::string type = fields.text("rope_type").value_or(old_type.value_or("default"));
  if (type == "llama3") {
    rope.scaled = true;
    rope.factor = fields.required_number("factor", 1);
    rope.low_frequency_factor = fields.required_number("low_freq_factor", 0);
    rope.high_frequency_factor = fields.required_number("high_freq_factor", 0);
    rope.original_context =
        fields.size("original_max_position_embeddings", 1, kLargestSize).value_or(max_context);
  } else if (type != "default") {
    throw Error("{}: the rope type is {}; supported are 'default' and 'llama3'", origin,
                in_quotes(type));
  }
  if (fields.number("partial_rotary_factor", 0).value_or(1) != 1) {
    fields.refuse("partial_rotary_factor", *fields.find("partial_rotary_factor"), "1");
  }
  if (const auto rest = fields.unread(); !rest.empty()) {
    throw Error("{}: the key {} is not known for the rope type {}", origin, in_quotes(rest[0]),
                in_quotes(type));
  }
  return rope;
}

/// Version 5 of the library has all of it in rope_parameters, version 4 in rope_theta and
/// rope_scaling; a file may have both.
void read_rotary(ConfigFields& fields, const Architecture& architecture, ModelConfig& model) {
  const auto read = [&](const char* key) -> std::optional<Rope> {
    const Json* json = fields.find(key);
    if (json == nullptr) return std::nullopt;
    return read_rope(*json, fields.origin() + ": " + key, model.max_context);
  };
  const auto scaling = read("rope_scaling");
  const auto parameters = read("rope_parameters");
  if (scaling && parameters && !scaling->same_scaling(*parameters)) {
    throw Error("{}: rope_scaling ({}) contradicts rope_parameters ({})", fields.origin(),
                printable(fields.find("rope_scaling")->dump()),
                printable(fields.find("rope_parameters")->dump()));
  }
  const Rope rope = parameters.value_or(scaling.value_or(Rope{}));
  const auto theta = fields.number_above_zero("rope_theta");
  if (theta && rope.theta && *theta != *rope.theta) {
    throw Error("{}: rope_theta is {}, and {} in rope_parameters", fields.origin(), *theta,
                *rope.theta);
  }
  model.rope_theta = rope.theta.value_or(theta.value_or(architecture.rope_theta));
  if (!rope.scaled) return;
  model.rope_scaling = "llama3";
  model.rope_factor = rope.factor;
  model.rope_low_frequency_factor = rope.low_frequency_factor;
  model.rope_high_frequency_factor = rope.high_frequency_factor;
  model.rope_original_context = rope.original_context;
}

/// The ids of special tokens, which an export hands on. The first Llama's files write -1 for none.
void check_token_ids(ConfigFields& fields, int64_t vocabulary_size) {
  const auto is_none = [](const Json& id) { return id.is_number_integer() && id == -1; };
  const auto is_token = [&](const Json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocabulary_size);
  };
  for (const char* key : kTokenIds) {
    const Json* ids = fields.find(key);
    if (ids == nullptr || is_none(*ids)) continue;
    const bool fits =
        ids->is_array() ? !ids->empty() && std::ranges::all_of(*ids, is_token) : is_token(*ids);
    if (fits) continue;
    fields.refuse(
        key, *ids,
        fmt::format(
            "null or -1 (none), a token's number or a list of them, from 0 to {} (vocab_size "
            "is {})",
            vocabulary_size - 1, vocabulary_size));
  }
}

void collect_warnings(ConfigFields& fields, std::vector<std::string>& warnings) {
  for (const char* key : kWithoutEffect) fields.find(key);
  for (const char* key : kTrainingOnly) {
    if (fields.number(key, 0).value_or(0) == 0) continue;
    warnings.push_back(fmt::format("{}: '{}' is {}; Tessera trains without it", fields.origin(),
                                   key, fields.find(key)->dump()));
  }
  for (const std::string& key : fields.unread()) {
    warnings.push_back(
        fmt::format("{}: the key {} is not known; ignored", fields.origin(), in_quotes(key)));
  }
}

}  // namespace

ReadConfig read_config(std::string_view text, const std::string& origin) {
  const Json json = parse_strict_json(text, origin, kDepth);
  ConfigFields fields(json, origin);
  ReadConfig result;
  result.architecture = &read_architecture(fields);
  const Architecture& architecture = *result.architecture;
  ModelConfig& model = result.model;
  model = family_preset(std::string(architecture.family));

  read_sizes(fields, architecture, model);
  read_experts(fields, architecture, model);
  read_rotary(fields, architecture, model);
  model.tied_head = fields.flag("tie_word_embeddings", false);
  // OLMo's class has a fixed epsilon and no key for it.
  if (architecture.family != "olmo") {
    model.norm_epsilon =
        fields.number_above_zero("rms_norm_eps").value_or(architecture.norm_epsilon);
  }
  // The library clips to 0 where it is 0; to Tessera that is no limit, as null is to the library.
  if (architecture.clips) model.clip_qkv = fields.number_above_zero("clip_qkv").value_or(0);
  if (const auto deviation = fields.number("initializer_range", 0); deviation && *deviation > 0) {
    model.initialization_deviation = *deviation;
  }
  refuse_other_layers(fields, model);
  check_token_ids(fields, model.vocabulary_size);
  collect_warnings(fields, result.warnings);
  try {
    validate(model);
  } catch (const Error& error) {
    throw Error("{}: {}", origin, error.what());
  }
  return result;
}

}  // namespace tessera::hugging_face
