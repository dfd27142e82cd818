// Lists of the keys of config.json that read_config() does not read: keys that must have the value
// that changes nothing, and keys without effect. Any other unread key is refused.

#include "checkpoint/hugging_face/refused_keys.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

// Keys that may only have the value that changes nothing.

/// Biases, norms and kinds of attention that Tessera does not have; false changes nothing.
constexpr const char* kSwitches[] = {
    // biases
    "add_bias_linear", "add_qkv_bias", "attention_bias", "attention_out_bias", "attention_qkv_bias",
    "lm_head_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qkv_bias",
    // norms
    "qk_layernorm", "qk_norm", "use_qk_norm", "zero_centered_norm",
    // kinds of attention and layers
    "add_cross_attention", "alibi", "is_encoder_decoder", "parallel_attn", "rope_interleaved",
    "use_alibi", "use_attention_sinks", "use_mla", "use_parallel_residual", "use_sliding_window"};

/// Factors that are applied to the values between layers; 1 changes nothing.
constexpr const char* kFactors[] = {
    "embedding_multiplier", "logit_scale",           "logits_scaling",
    "lm_head_multiplier",   "partial_rotary_factor", "pretraining_tp",
    "residual_multiplier",  "routed_scaling_factor", "scale_emb"};

/// Numbers of experts and layers that Tessera does not have; 0 changes nothing.
constexpr const char* kCounts[] = {"attention_chunk_size",   "first_k_dense_replace",
                                   "n_shared_experts",       "num_shared_experts",
                                   "no_rope_layer_interval", "shared_expert_intermediate_size"};

/// Keys of parts that Tessera does not have. Only null changes nothing.
constexpr const char* kForeignKeys[] = {"attention_multiplier",    "attn_logit_softcapping",
                                        "final_logit_softcapping", "kv_lora_rank",
                                        "no_rope_layers",          "q_lora_rank",
                                        "query_pre_attn_scalar",   "scale_depth"};

// Keys on which no logit depends.

/// Keys that the library, in versions 4 and 5, or another tool writes into the file of any model.
constexpr const char* kGeneralKeys[] = {
    // names, versions and element types
    "_commit_hash", "_name_or_path", "dtype", "finetuning_task", "name_or_path", "tokenizer_class",
    "torch_dtype", "transformers.js_config", "transformers_version", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "vocab_type", "is_llama_config",
    // the way in which a call computes, and its outputs
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
    "_flash_attn_2_enabled", "attn_implementation", "chunk_size_feed_forward",
    "experts_implementation", "gradient_checkpointing", "is_decoder", "max_sequence_length",
    "output_attentions", "output_hidden_states", "return_dict", "tie_encoder_decoder",
    "tie_last_hidden_states", "torchscript", "tf_legacy_loss", "use_cache", "use_return_dict",
    // labels of classifiers, special tokens and settings of tasks
    "decoder_start_token_id", "id2label", "label2id", "num_labels", "prefix", "problem_type",
    "sep_token_id", "task_specific_params", "unk_token_id"};

/// Settings with which the library's generate() draws tokens; older versions wrote them here.
/// Tessera has options for them.
constexpr const char* kGenerationKeys[] = {
    // the number of tokens
    "early_stopping", "max_length", "max_new_tokens", "min_length", "length_penalty",
    "exponential_decay_length_penalty", "num_return_sequences",
    // tokens that are forced, excluded or penalised
    "bad_words_ids", "begin_suppress_tokens", "suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "encoder_no_repeat_ngram_size", "no_repeat_ngram_size",
    "encoder_repetition_penalty", "repetition_penalty", "remove_invalid_values",
    // sampling and beam search
    "do_sample", "temperature", "top_k", "top_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "diversity_penalty", "num_beam_groups", "num_beams",
    // assisted generation, and outputs
    "assistant_confidence_threshold", "assistant_lookbehind", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "target_lookbehind", "output_scores",
    "return_dict_in_generate"};

/// Throws Error if a window is shorter than the model's context, or if a layer is of a type that
/// attends within a window.
void refuse_windows(ConfigFields& fields, const Architecture& architecture,
                    const ModelConfig& model) {
  const auto window = fields.size("sliding_window", 1, int64_t{1} << 40);
  if (window && *window < model.max_context) {
    fields.refuse("sliding_window",
                  fmt::format("null or at least max_position_embeddings ({}): attention here "
                              "reaches back to the sequence's start",
                              model.max_context));
  }
  if (const Json* types = fields.find("layer_types")) {
    const std::string expected = architecture.family == Family::zaya ? "hybrid" : "full_attention";
    const bool full = types->is_array() && std::ranges::all_of(*types, [&](const Json& type) {
                        return type == expected;
                      });
    if (!full) fields.refuse("layer_types", fmt::format("\"{}\" in every layer", expected));
  }
}

}  // namespace

void refuse_other_layers(ConfigFields& fields, const Architecture& architecture,
                         const ModelConfig& model) {
  for (const char* key : kSwitches) {
    if (fields.flag(key, false)) fields.refuse(key, "false");
  }
  if (!fields.flag("is_causal", true)) fields.refuse("is_causal", "true");
  if (const auto act = fields.text("hidden_act"); act && *act != "silu" && *act != "swish") {
    fields.refuse("hidden_act", "\"silu\"");
  }
  for (const char* key : kFactors) {
    if (fields.number(key, 0).value_or(1) != 1) fields.refuse(key, "1");
  }
  for (const char* key : kCounts) {
    if (fields.number(key, 0).value_or(0) != 0) fields.refuse(key, "0");
  }
  for (const char* key : kForeignKeys) {
    if (fields.find(key) == nullptr) continue;
    fields.refuse(key, "null: the model computes or stores something that Tessera does not have");
  }
  if (fields.find("transformers_weights") != nullptr) {
    fields.refuse("transformers_weights",
                  "null: weights are read from model.safetensors or by its index");
  }
  if (const Json* pruned = fields.find("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    fields.refuse("pruned_heads", "no pruned heads");
  }
  if (fields.find("quantization_config") != nullptr) {
    fields.refuse("quantization_config", "weights that are not quantised");
  }
  refuse_windows(fields, architecture, model);
}

void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes) {
  // find() marks these keys as read, so that unread() leaves them out.
  for (const char* key : kGeneralKeys) fields.find(key);
  for (const char* key : kGenerationKeys) fields.find(key);
  const std::vector<std::string> unknown = fields.unread();
  for (const std::string& key : accepted) {
    if (std::ranges::find(unknown, key) != unknown.end()) continue;
    throw Error("--accept-key {}: {} has no unknown key of that name; leave the option out",
                in_quotes(key), fields.origin());
  }
  std::vector<std::string> refused;
  for (const std::string& key : unknown) {
    const std::string line =
        fmt::format("{} = {}", in_quotes(key), printable(fields.find(key)->dump()));
    if (std::ranges::find(accepted, key) == accepted.end()) {
      refused.push_back(line);
    } else {
      notes.push_back(
          fmt::format("{}: {} is not known and has no effect here, as --accept-key says",
                      fields.origin(), line));
    }
  }
  if (refused.empty()) return;
  throw Error(
      "{}: keys that Tessera does not know, so that it may compute something else than the model "
      "does:\n  {}\nwhere nothing depends on one, accept it with --accept-key NAME",
      fields.origin(), join(refused, "\n  "));
}

}  // namespace tessera::hugging_face
