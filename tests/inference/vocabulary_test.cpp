#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/byte_tokenizer.h"
#include "data/tokenizer.h"
#include "inference/decoder.h"
#include "inference/evaluate.h"
#include "support/error_of.h"
#include "support/small_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::SmallModel;

std::string refusal_of(std::vector<int32_t> tokens, int64_t vocabulary_size) {
  const ByteTokenizer tokenizer;
  return error_of([&] { require_in_vocabulary(tokens, vocabulary_size, &tokenizer); });
}

TEST(Vocabulary, TheTokenItsTextAndTheModelAreNamed) {
  EXPECT_NO_THROW(require_in_vocabulary(std::vector<int32_t>{0, 99}, 100));
  EXPECT_NO_THROW(require_in_vocabulary(std::vector<int32_t>{-1, 99}, 100, nullptr, -1));
  EXPECT_THAT(refusal_of({97, 'z', 'y'}, 100),
              HasSubstr("token 122 ('z') is outside the model's vocabulary of 100 tokens (0 to "
                        "99)"));
  EXPECT_THAT(refusal_of({256}, 100), HasSubstr("token 256 (a control token) is outside"));
  EXPECT_THAT(refusal_of({3000}, 100), HasSubstr("token 3000 is outside"));
  EXPECT_THAT(refusal_of({-1}, 100), HasSubstr("token -1 is outside"));
}

TEST(Vocabulary, NoTokenFromOutsideComesToAProgram) {
  SmallModel small(20);
  for (const int32_t token : {20, 1 << 30, -1}) {
    Decoder decoder(small.model.config.model, DType::f32, small.model.weights, 8, small.runtime);
    EXPECT_THAT(error_of([&] {
                  decoder.feed(std::vector<int32_t>{3, token});
                }),
                HasSubstr("outside the model's vocabulary of 20 tokens"));
  }
  StandaloneEvaluator evaluator(
      evaluation_passes(write_evaluation(small.model.config.model, DType::f32, {1, 4})),
      small.model.weights, small.runtime);
  Batch batch{.rows = 1, .context = 4, .tokens = {1, 2, 3, 19}};
  complete_batch(batch, -1);
  EXPECT_GT(evaluator->row_losses(batch)[0], 0);
  for (const int32_t token : {20, -1}) {
    Batch wrong = batch;
    wrong.tokens[3] = token;
    EXPECT_THAT(error_of([&] { evaluator->row_losses(wrong); }), HasSubstr("outside the model's"));
  }
  for (const int32_t target : {20, -2}) {
    Batch wrong = batch;
    wrong.targets[1] = target;
    EXPECT_THAT(error_of([&] { evaluator->row_losses(wrong); }), HasSubstr("outside the model's"));
  }
}

}  // namespace
}  // namespace tessera
