#include "inference/generate.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/small_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::SmallModel;

const GenerateOptions kGreedy{.tokens = 5, .sampling = {.temperature = 0}};

TEST(Generate, AnyOfTheModelsEndTokensEndsTheText) {
  SmallModel small(257, /*zero=*/true);  // the first token is always taken
  EXPECT_EQ(generate(small.model, "a", kGreedy, small.runtime).tokens, std::vector<int32_t>(5, 0));
  small.model.end_tokens = {7, 0};
  EXPECT_TRUE(generate(small.model, "a", kGreedy, small.runtime).tokens.empty());
  GenerateOptions goes_on = kGreedy;
  goes_on.stop_at_end = false;
  EXPECT_EQ(generate(small.model, "a", goes_on, small.runtime).tokens.size(), 5U);
}

TEST(Generate, ANumberOfTokensBeyondTheContextIsRefused) {
  SmallModel small(257);
  GenerateOptions options = kGreedy;
  options.tokens = 62;  // the prompt has two
  EXPECT_NO_THROW(generate(small.model, "a", options, small.runtime));
  for (const int64_t tokens : {int64_t{63}, std::numeric_limits<int64_t>::max()}) {
    options.tokens = tokens;
    EXPECT_THAT(error_of([&] { generate(small.model, "a", options, small.runtime); }),
                HasSubstr(fmt::format("the prompt has 2 tokens; with {} new ones that is more than "
                                      "the model's context of 64",
                                      tokens)));
  }
  options.tokens = 0;
  EXPECT_THAT(error_of([&] { generate(small.model, "a", options, small.runtime); }),
              HasSubstr("give at least 1"));
}

TEST(Generate, APromptWithATokenThatTheModelHasNotIsRefused) {
  SmallModel small(256);  // the tokenizer's end of a document is 256
  EXPECT_THAT(error_of([&] { generate(small.model, "a", kGreedy, small.runtime); }),
              HasSubstr("token 256 (a control token) is outside the model's vocabulary of 256"));
}

}  // namespace
}  // namespace tessera
