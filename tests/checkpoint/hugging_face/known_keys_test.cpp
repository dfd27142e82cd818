#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/hugging_face/read_config.h"
#include "checkpoint/hugging_face/refused_keys.h"
#include "support/error_of.h"
#include "support/hugging_face_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;
using testing::small_llama_config;
using testing::small_olmoe_config;

std::string refusal_with(const Json& json, std::vector<std::string> accepted = {}) {
  return error_of([&] { read_config(json.dump(), "config.json", accepted); });
}

TEST(KnownKeys, EveryUnknownKeyIsRefusedByNameAtOnce) {
  Json json = small_olmoe_config();
  json["\x1b[31mnovel"] = 5;
  json["use_gated_norms"] = {{"of", "all"}};
  json["unset"] = nullptr;
  EXPECT_THAT(refusal_with(json), AllOf(HasSubstr("config.json: keys that Tessera does not know"),
                                        HasSubstr("'?[31mnovel' = 5"),
                                        HasSubstr("'use_gated_norms' = {\"of\":\"all\"}"),
                                        HasSubstr("--accept-key NAME"), Not(HasSubstr("unset"))));
  EXPECT_THAT(refusal_with(json, {"use_gated_norms"}),
              AllOf(HasSubstr("novel"), Not(HasSubstr("use_gated_norms"))));
  json.erase("\x1b[31mnovel");
  EXPECT_THAT(
      read_config(json.dump(), "config.json", std::vector<std::string>{"use_gated_norms"}).notes,
      ElementsAre(HasSubstr("'use_gated_norms' = {\"of\":\"all\"} is not known and has no "
                            "effect here, as --accept-key says")));
}

TEST(KnownKeys, AcceptingWhatIsNotThereOrIsKnownIsRefused) {
  EXPECT_THAT(refusal_with(small_olmoe_config(), {"novel"}),
              HasSubstr("--accept-key 'novel': config.json has no unknown key of that name"));
  Json json = small_olmoe_config();
  json["use_cache"] = true;
  EXPECT_THAT(refusal_with(json, {"use_cache"}), HasSubstr("--accept-key 'use_cache'"));
  json["attention_bias"] = true;  // known, and what it says is not had
  EXPECT_THAT(refusal_with(json, {"attention_bias"}), HasSubstr("'attention_bias' is true"));
}

/// What version 4.57 writes of any model with use_diff=False, and what 5.23 adds.
TEST(KnownKeys, WhatTheLibraryWritesOfEveryModelIsKnown) {
  const Json common = Json::parse(R"({
    "return_dict": true, "output_hidden_states": false, "torchscript": false,
    "dtype": "bfloat16", "torch_dtype": "bfloat16", "tf_legacy_loss": false,
    "use_bfloat16": false, "pruned_heads": {}, "tie_word_embeddings": false,
    "chunk_size_feed_forward": 0, "is_encoder_decoder": false, "is_decoder": false,
    "cross_attention_hidden_size": null, "add_cross_attention": false,
    "tie_encoder_decoder": false, "finetuning_task": null, "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0}, "num_labels": 1, "tokenizer_class": "X", "prefix": "p",
    "bos_token_id": 1, "sep_token_id": 3, "decoder_start_token_id": 4,
    "task_specific_params": {"a": {}}, "problem_type": "regression", "_name_or_path": "here",
    "transformers_version": "4.57.0", "output_attentions": false, "max_length": 20,
    "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
    "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50,
    "top_p": 1.0, "typical_p": 1.0, "repetition_penalty": 1.0, "length_penalty": 1.0,
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "bad_words_ids": null,
    "num_return_sequences": 1, "output_scores": false, "return_dict_in_generate": false,
    "forced_bos_token_id": null, "forced_eos_token_id": null, "remove_invalid_values": false,
    "exponential_decay_length_penalty": null, "suppress_tokens": null,
    "begin_suppress_tokens": null, "use_cache": true, "initializer_range": 0.02,
    "attention_bias": false, "attention_dropout": 0.0, "per_layer_config": null})");
  Json json = small_llama_config();
  json.update(common);
  json["mlp_bias"] = false;
  json["pretraining_tp"] = 1;
  EXPECT_THAT(read_config(json.dump(), "config.json").notes, IsEmpty());
}

}  // namespace
}  // namespace tessera::hugging_face
