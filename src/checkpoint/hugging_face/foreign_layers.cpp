#include "checkpoint/hugging_face/foreign_layers.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

/// Biases, norms and attention that Tessera does not have.
constexpr std::array<const char*, 24> kSwitches{"add_bias_linear",
                                                "add_cross_attention",
                                                "add_qkv_bias",
                                                "alibi",
                                                "attention_bias",
                                                "attention_out_bias",
                                                "attention_qkv_bias",
                                                "is_encoder_decoder",
                                                "lm_head_bias",
                                                "mlp_bias",
                                                "parallel_attn",
                                                "qk_layernorm",
                                                "qk_norm",
                                                "qkv_bias",
                                                "rope_interleaved",
                                                "use_alibi",
                                                "use_bias",
                                                "use_mla",
                                                "use_parallel_residual",
                                                "use_qk_norm",
                                                "use_qkv_bias",
                                                "use_sliding_window",
                                                "use_attention_sinks",
                                                "zero_centered_norm"};

/// Factors applied to the values between layers.
constexpr std::array<const char*, 9> kFactors{
    "embedding_multiplier", "logit_scale",           "logits_scaling",
    "lm_head_multiplier",   "partial_rotary_factor", "pretraining_tp",
    "residual_multiplier",  "routed_scaling_factor", "scale_emb"};

/// Experts and layers that Tessera does not have.
constexpr std::array<const char*, 6> kCounts{
    "attention_chunk_size", "first_k_dense_replace",  "n_shared_experts",
    "num_shared_experts",   "no_rope_layer_interval", "shared_expert_intermediate_size"};

/// Keys that are refused if present, whatever their value.
constexpr std::array<const char*, 8> kAlwaysForeign{
    "attention_multiplier",    "attn_logit_softcapping",
    "final_logit_softcapping", "kv_lora_rank",
    "no_rope_layers",          "q_lora_rank",
    "query_pre_attn_scalar",   "scale_depth"};

void refuse_windows(ConfigFields& fields, const Architecture& architecture,
                    const ModelConfig& model) {
  const auto window = fields.size("sliding_window", 1, int64_t{1} << 40);
  if (window && *window < model.max_context) {
    fields.refuse("sliding_window", *fields.find("sliding_window"),
                  fmt::format("null or at least max_position_embeddings ({}): attention here "
                              "reaches back to the sequence's start",
                              model.max_context));
  }
  if (const Json* types = fields.find("layer_types")) {
    const std::string expected = architecture.family == Family::zaya ? "hybrid" : "full_attention";
    const bool full = types->is_array() && std::ranges::all_of(*types, [&](const Json& type) {
                        return type == expected;
                      });
    if (!full) {
      fields.refuse("layer_types", *types, fmt::format("\"{}\" in every layer", expected));
    }
  }
}

}  // namespace

void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model) {
  for (const char* key : kSwitches) {
    if (fields.flag(key, false)) fields.refuse(key, *fields.find(key), "false");
  }
  if (!fields.flag("is_causal", true))
    fields.refuse("is_causal", *fields.find("is_causal"), "true");
  if (const auto act = fields.text("hidden_act"); act && *act != "silu" && *act != "swish") {
    fields.refuse("hidden_act", *fields.find("hidden_act"), "\"silu\"");
  }
  for (const char* key : kFactors) {
    if (fields.number(key, 0).value_or(1) != 1) fields.refuse(key, *fields.find(key), "1");
  }
  for (const char* key : kCounts) {
    if (fields.number(key, 0).value_or(0) != 0) fields.refuse(key, *fields.find(key), "0");
  }
  for (const char* key : kAlwaysForeign) {
    if (const Json* value = fields.find(key)) {
      fields.refuse(key, *value,
                    "null: the model computes or stores something that Tessera does not have");
    }
  }
  if (const Json* weights = fields.find("transformers_weights")) {
    fields.refuse("transformers_weights", *weights,
                  "null: weights are read from model.safetensors or by its index");
  }
  if (const Json* pruned = fields.find("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    fields.refuse("pruned_heads", *pruned, "no pruned heads");
  }
  if (const Json* quantized = fields.find("quantization_config")) {
    fields.refuse("quantization_config", *quantized, "weights that are not quantised");
  }
  refuse_windows(fields, architecture, model);
}

}  // namespace tessera::hugging_face
