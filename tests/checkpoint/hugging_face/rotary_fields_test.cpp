#include "checkpoint/hugging_face/rotary_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/hugging_face/read_config.h"
#include "support/error_of.h"
#include "support/hugging_face_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using testing::small_llama_config;

ModelConfig rotary_of(const Json& json) { return read_config(json.dump(), "config.json").model; }
std::string refusal_of(const Json& json) {
  return error_of([&] { rotary_of(json); });
}

/// Both versions' objects, which agree.
Json both_objects() {
  Json json = small_llama_config();
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = json["rope_theta"];
  return json;
}

TEST(RotaryFields, BothObjectsMaySayTheSame) {
  EXPECT_EQ(rotary_of(both_objects()).rope_theta, 500000);
  Json json = both_objects();  // each with its own theta
  json["rope_scaling"]["rope_theta"] = json["rope_theta"];
  json.erase("rope_theta");
  EXPECT_EQ(rotary_of(json).rope_theta, 500000);
}

/// The library takes rope_scaling with a theta of its own, else that beside it, else the class's.
TEST(RotaryFields, ObjectsThatDifferInThetaAloneAreRefused) {
  Json json = both_objects();
  json.erase("rope_theta");  // rope_scaling has 10000 now
  EXPECT_THAT(refusal_of(json),
              AllOf(HasSubstr("with the rope_theta 10000) contradicts rope_parameters"),
                    HasSubstr("with 500000"), HasSubstr("the library takes rope_scaling")));
  json["rope_scaling"]["rope_theta"] = 20000;
  EXPECT_THAT(refusal_of(json), HasSubstr("with the rope_theta 20000) contradicts"));
  json["rope_scaling"] = {{"rope_type", "default"}};
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000}};
  EXPECT_THAT(refusal_of(json), HasSubstr("with the rope_theta 10000) contradicts"));
}

TEST(RotaryFields, ObjectsThatDifferInScalingAreRefused) {
  Json json = both_objects();
  json["rope_parameters"]["factor"] = 4;
  EXPECT_THAT(refusal_of(json), HasSubstr("contradicts rope_parameters"));
  json["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_THAT(refusal_of(json), HasSubstr("contradicts rope_parameters"));
}

TEST(RotaryFields, AnOriginalContextBesideTheObjectMustBeItsOwn) {
  Json json = small_llama_config();
  json["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(rotary_of(json).rope_original_context, 8192);
  json["original_max_position_embeddings"] = 4096;
  EXPECT_THAT(refusal_of(json), HasSubstr("original_max_position_embeddings is 4096, but the "
                                          "scaling of the rotary embedding goes by 8192"));
  json.erase("rope_scaling");
  EXPECT_THAT(refusal_of(json), HasSubstr("'original_max_position_embeddings' = 4096"));
}

}  // namespace
}  // namespace tessera::hugging_face
