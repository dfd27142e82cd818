#include "checkpoint/hugging_face/known_keys.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera::hugging_face {
namespace {

/// Keys that the library writes into any model's file, in versions 4 and 5, and on which no logit
/// depends: names and versions, the outputs of a call, the way it is computed, labels of
/// classifiers, and keys left by other tools.
constexpr std::array kOfEveryModel{"_attn_implementation",
                                   "_attn_implementation_autoset",
                                   "_commit_hash",
                                   "_experts_implementation",
                                   "_flash_attn_2_enabled",
                                   "_name_or_path",
                                   "attn_implementation",
                                   "chunk_size_feed_forward",
                                   "decoder_start_token_id",
                                   "dtype",
                                   "experts_implementation",
                                   "finetuning_task",
                                   "gradient_checkpointing",
                                   "id2label",
                                   "is_decoder",
                                   "is_llama_config",
                                   "label2id",
                                   "max_sequence_length",
                                   "name_or_path",
                                   "num_labels",
                                   "output_attentions",
                                   "output_hidden_states",
                                   "prefix",
                                   "problem_type",
                                   "return_dict",
                                   "sep_token_id",
                                   "task_specific_params",
                                   "tf_legacy_loss",
                                   "tie_encoder_decoder",
                                   "tie_last_hidden_states",
                                   "tokenizer_class",
                                   "torch_dtype",
                                   "torchscript",
                                   "transformers.js_config",
                                   "transformers_version",
                                   "unk_token_id",
                                   "unsloth_fixed",
                                   "unsloth_version",
                                   "use_bfloat16",
                                   "use_cache",
                                   "use_return_dict",
                                   "vocab_type"};

/// Settings with which the library's generate() draws tokens; older versions wrote them here.
/// Tessera has options for them.
constexpr std::array kOfGeneration{"assistant_confidence_threshold",
                                   "assistant_lookbehind",
                                   "bad_words_ids",
                                   "begin_suppress_tokens",
                                   "diversity_penalty",
                                   "do_sample",
                                   "early_stopping",
                                   "encoder_no_repeat_ngram_size",
                                   "encoder_repetition_penalty",
                                   "epsilon_cutoff",
                                   "eta_cutoff",
                                   "exponential_decay_length_penalty",
                                   "forced_bos_token_id",
                                   "forced_eos_token_id",
                                   "length_penalty",
                                   "max_length",
                                   "max_new_tokens",
                                   "min_length",
                                   "no_repeat_ngram_size",
                                   "num_assistant_tokens",
                                   "num_assistant_tokens_schedule",
                                   "num_beam_groups",
                                   "num_beams",
                                   "num_return_sequences",
                                   "output_scores",
                                   "remove_invalid_values",
                                   "repetition_penalty",
                                   "return_dict_in_generate",
                                   "suppress_tokens",
                                   "target_lookbehind",
                                   "temperature",
                                   "top_k",
                                   "top_p",
                                   "typical_p"};

}  // namespace

void refuse_unknown_keys(ConfigFields& fields, std::span<const std::string> accepted,
                         std::vector<std::string>& notes) {
  for (const char* key : kOfEveryModel) fields.find(key);
  for (const char* key : kOfGeneration) fields.find(key);
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
