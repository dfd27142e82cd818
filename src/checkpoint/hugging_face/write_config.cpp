#include "checkpoint/hugging_face/write_config.h"

#include <nlohmann/json.hpp>

#include "checkpoint/hugging_face/token_ids.h"
#include "checkpoint/hugging_face/zaya_fields.h"

namespace tessera::hugging_face {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Writes the rotary embedding in the forms of both versions of the library.
void write_rotary(const ModelConfig& model, OrderedJson& json) {
  OrderedJson scaling;  // null: no scaling
  if (model.rope_scaling == RopeScaling::llama3) {
    scaling = {{"rope_type", "llama3"},
               {"factor", model.rope_factor},
               {"low_freq_factor", model.rope_low_frequency_factor},
               {"high_freq_factor", model.rope_high_frequency_factor},
               {"original_max_position_embeddings", model.rope_original_context}};
  }
  OrderedJson parameters = scaling.is_null() ? OrderedJson{{"rope_type", "default"}} : scaling;
  parameters["rope_theta"] = model.rope_theta;
  json["rope_theta"] = model.rope_theta;
  json["rope_scaling"] = scaling;
  json["rope_parameters"] = parameters;
}

/// Returns the coefficient of the library's load-balance loss, which pools the tokens of all
/// layers. A model with one loss per layer gets the same gradients from it while its load is
/// balanced: the pooled loss does not divide by the experts per token k, and it averages over the L
/// layers instead of summing, so the coefficient is multiplied by L / k (ops/router/losses.h).
double pooled_coefficient(const ModelConfig& model) {
  if (model.balance_form == BalanceForm::pooled) return model.balance_coefficient;
  return model.balance_coefficient * static_cast<double>(model.layers) /
         static_cast<double>(model.experts_per_token);
}

void write_experts(const Architecture& architecture, const ModelConfig& model, OrderedJson& json) {
  json["intermediate_size"] = architecture.mixture() ? model.expert_size : model.feed_forward_size;
  if (!architecture.mixture()) return;
  json[std::string(architecture.experts_key)] = model.experts;
  json["num_experts_per_tok"] = model.experts_per_token;
  json["router_aux_loss_coef"] = pooled_coefficient(model);
  if (architecture.family == Family::olmoe) json["norm_topk_prob"] = model.renormalise_weights;
}

}  // namespace

std::string write_config(const Architecture& architecture, const ModelConfig& model,
                         const ConfigSurroundings& surroundings) {
  OrderedJson json{
      {"architectures", {architecture.name}}, {"model_type", architecture.model_type()},
      {"vocab_size", model.vocabulary_size},  {"hidden_size", model.hidden_size},
      {"num_hidden_layers", model.layers},    {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads}};
  if (architecture.chooses_head_dim) json["head_dim"] = model.head_size();
  const bool zaya = architecture.family == Family::zaya;
  if (!zaya) write_experts(architecture, model, json);
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = surroundings.max_context;
  if (architecture.family != Family::olmo) json["rms_norm_eps"] = model.norm_epsilon;
  zaya ? write_zaya(model, json) : write_rotary(model, json);
  if (!architecture.chooses_head_dim)
    json["clip_qkv"] = model.clip_qkv > 0 ? OrderedJson(model.clip_qkv) : OrderedJson();
  json["tie_word_embeddings"] = model.tied_head;
  if (architecture.family != Family::mixtral) json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["initializer_range"] = model.initialization_deviation;
  json["use_cache"] = true;
  const OrderedJson original = surroundings.original.empty()
                                   ? OrderedJson::object()
                                   : OrderedJson::parse(surroundings.original);
  if (architecture.mixture()) {
    json["output_router_logits"] = original.value("output_router_logits", OrderedJson()) == true;
  }
  // The window does not affect sequences up to max_context. It is kept for longer sequences.
  if (const OrderedJson window = original.value("sliding_window", OrderedJson());
      window.is_number() && window >= surroundings.max_context) {
    json["sliding_window"] = window;
  }
  // All three ids are written, because the library replaces a missing id by its default. It did so
  // for the imported model, too.
  for (const char* key : kTokenIdKeys) {
    json[key] = original.value(key, OrderedJson());
    if (!surroundings.original.empty() && !original.contains(key)) {
      json[key] = default_token_id(architecture, key, model.vocabulary_size);
    }
    if (json[key] == -1) json[key] = nullptr;  // as in read_config()
  }
  if (surroundings.original.empty() && surroundings.end_of_document >= 0) {
    json["eos_token_id"] = surroundings.end_of_document;
  }
  json["dtype"] = surroundings.dtype;
  json["torch_dtype"] = surroundings.dtype;
  return json.dump(2) + "\n";
}

std::string write_generation_config(std::string_view config) {
  const OrderedJson json = OrderedJson::parse(config);
  OrderedJson result = OrderedJson::object();
  for (const char* key : kTokenIdKeys) {
    if (json.contains(key) && !json[key].is_null()) result[key] = json[key];
  }
  return result.dump(2) + "\n";
}

}  // namespace tessera::hugging_face
