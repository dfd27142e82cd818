#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/hugging_face/read_config.h"
#include "support/hugging_face_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using testing::small_llama_config;
using testing::small_olmoe_config;

std::vector<std::string> notes_with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return read_config(json.dump(), "config.json").notes;
}

TEST(TrainingNotes, ALossThatTheLibraryLeavesOutIsSaid) {
  const auto said = ElementsAre(
      AllOf(HasSubstr("config.json: 'output_router_logits' is false, so that transformers trains "
                      "without the load-balance loss; Tessera trains with it"),
            HasSubstr("router_aux_loss_coef 0.01"), HasSubstr("model.balance_coefficient = 0")));
  EXPECT_THAT(notes_with(small_olmoe_config(), "output_router_logits", false), said);
  EXPECT_THAT(notes_with(small_olmoe_config(), "output_router_logits", nullptr), said);
  EXPECT_THAT(notes_with(small_olmoe_config(), "output_router_logits", true), IsEmpty());
  Json json = small_olmoe_config();
  json["router_aux_loss_coef"] = 0.0;
  EXPECT_THAT(notes_with(json, "output_router_logits", false), IsEmpty());
  EXPECT_THAT(notes_with(small_llama_config(), "output_router_logits", false), IsEmpty());
}

TEST(TrainingNotes, TheRowThatTheLibraryDoesNotTrainIsSaid) {
  EXPECT_THAT(notes_with(small_olmoe_config(), "pad_token_id", 7),
              ElementsAre(HasSubstr("transformers does not train the embedding of the token 7 "
                                    "('pad_token_id'); Tessera trains it as any other")));
  EXPECT_THAT(notes_with(small_olmoe_config(), "pad_token_id", -1),
              ElementsAre(HasSubstr("the token 299 ")));
  EXPECT_THAT(notes_with(small_olmoe_config(), "pad_token_id", nullptr), IsEmpty());
  Json json = small_olmoe_config();  // left out, the class has a token of its own
  json.erase("pad_token_id");
  EXPECT_THAT(notes_with(json, "use_cache", true),
              ElementsAre(HasSubstr("the token 1 ('pad_token_id', by default)")));
  EXPECT_THAT(notes_with(small_llama_config(), "use_cache", true), IsEmpty());
}

TEST(TrainingNotes, WhatElseIsNotReadIsSaid) {
  EXPECT_THAT(notes_with(small_llama_config(), "attention_dropout", 0.1),
              ElementsAre(HasSubstr("'attention_dropout' is 0.1; Tessera trains without it")));
  EXPECT_THAT(notes_with(small_llama_config(), "sliding_window", 131072),
              ElementsAre(HasSubstr("'sliding_window' is 131072")));
  EXPECT_THAT(notes_with(small_llama_config(), "auto_map", {{"AutoConfig", "a.B"}}),
              ElementsAre(HasSubstr("'auto_map' names code of the model's own")));
}

}  // namespace
}  // namespace tessera::hugging_face
