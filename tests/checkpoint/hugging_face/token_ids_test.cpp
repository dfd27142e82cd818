#include "checkpoint/hugging_face/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera::hugging_face {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TokenIds, OneOrSeveralTokensEndAText) {
  EXPECT_THAT(read_end_tokens(R"({"eos_token_id": 2})", "f"), ElementsAre(2));
  EXPECT_THAT(read_end_tokens(R"({"eos_token_id": [128001, 128008, 128009]})", "f"),
              ElementsAre(128001, 128008, 128009));
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": -1})"}) {
    EXPECT_THAT(read_end_tokens(none, "f"), IsEmpty());
  }
}

TEST(TokenIds, WhatIsNoTokenIsNamed) {
  for (const char* ids : {"[]", "\"2\"", "[2,-1]", "1.5", "4294967296", "{}"}) {
    EXPECT_THAT(
        error_of([&] { read_end_tokens(std::string(R"({"eos_token_id": )") + ids + "}", "f"); }),
        HasSubstr(std::string("f: 'eos_token_id' is ") + ids + "; expected null or -1"));
  }
  EXPECT_THAT(error_of([] { read_end_tokens("{", "f"); }), HasSubstr("f"));
}

}  // namespace
}  // namespace tessera::hugging_face
