#include "data/ngram.h"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/loader.h"
#include "data/support.h"

namespace tessera {
namespace {

TEST(Ngram, AgreesWithAComputationByHand) {
  NgramBaseline model(4);
  model.count(std::vector<int32_t>{0, 1, 0, 1, 2});
  model.count(std::vector<int32_t>{2, 1});
  // Targets 1 0 1 2 1: n = 5, T = 3 kinds. c(1) = 3.
  EXPECT_DOUBLE_EQ(model.unigram(1), (3 + 0.75) / 8);
  EXPECT_DOUBLE_EQ(model.unigram(3), 0.75 / 8);
  // Pairs 01 twice; 10, 12, 21 once: n1 = 3, n2 = 1, D = 3 / 5.
  EXPECT_DOUBLE_EQ(model.discount(), 0.6);
  // q(1) = (T'(1) + T / V) / (4 + T) with T'(1) = 2 predecessors; q(3) has none.
  const double q1 = 2.75 / 7;
  const double q3 = 0.75 / 7;
  EXPECT_DOUBLE_EQ(model.bigram(0, 1), (2 - 0.6 + 0.6 * 1 * q1) / 2);
  EXPECT_DOUBLE_EQ(model.bigram(1, 1), 0.6 * 2 * q1 / 2);
  EXPECT_DOUBLE_EQ(model.bigram(1, 3), 0.6 * 2 * q3 / 2);
  EXPECT_DOUBLE_EQ(model.bigram(3, 1), q1);
}

RC_GTEST_PROP(Ngram, ProbabilitiesArePositiveAndSumToOne, ()) {
  const auto vocabulary = *rc::gen::inRange<int32_t>(1, 12);
  const auto rows = *rc::gen::container<std::vector<std::vector<int32_t>>>(
      rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(0, vocabulary)));
  NgramBaseline model(vocabulary);
  for (const auto& row : rows) model.count(row);
  double unigram = 0;
  for (int32_t token = 0; token < vocabulary; ++token) {
    RC_ASSERT(model.unigram(token) > 0);
    unigram += model.unigram(token);
    double bigram = 0;
    for (int32_t next = 0; next < vocabulary; ++next) {
      RC_ASSERT(model.bigram(token, next) > 0);
      bigram += model.bigram(token, next);
    }
    RC_ASSERT(std::abs(bigram - 1) < 1e-12);
  }
  RC_ASSERT(std::abs(unigram - 1) < 1e-12);
}

TEST(Ngram, EvaluatesOnTheLoadersTargets) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "abcabd"[i % 6];
  const PrepareOptions options =
      byte_options(folder.write("a.txt", text + random_text(1, 100)), folder / "out");
  prepare(options, Logger());

  for (const int64_t context : {16, 8}) {
    const TrainingData data = open_data({.directory = options.output.string(), .context = context});
    const InstanceSource& source = *data.sources.front().instances;
    const auto batch_of = [&](Split split) {
      return Loader(data, {.split = split, .rows = source.instances(split)}).next();
    };
    const Batch train = batch_of(Split::train);
    const Batch held_out = batch_of(Split::held_out);
    NgramBaseline model(257);
    for (int64_t row = 0; row < train.rows; ++row) {
      model.count(std::span(train.tokens)
                      .subspan(static_cast<size_t>(row * context), static_cast<size_t>(context)));
    }
    double unigram = 0;
    double bigram = 0;
    for (size_t i = 0; i < held_out.tokens.size(); ++i) {
      if (held_out.targets[i] < 0) continue;
      unigram -= std::log(model.unigram(held_out.targets[i]));
      bigram -= std::log(model.bigram(held_out.tokens[i], held_out.targets[i]));
    }
    const BaselineLoss loss = ngram_baseline(source, 257);
    EXPECT_EQ(loss.targets, held_out.target_count);
    EXPECT_NEAR(loss.unigram, unigram / static_cast<double>(held_out.target_count), 1e-9);
    EXPECT_NEAR(loss.bigram, bigram / static_cast<double>(held_out.target_count), 1e-9);
    EXPECT_LT(loss.bigram, loss.unigram);
    EXPECT_LT(loss.unigram, std::log(257.0));
  }
}

TEST(Ngram, ATokenOutsideTheVocabularyIsAnErrorInEitherSplit) {
  const TemporaryFolder folder;
  const PrepareOptions options =
      byte_options(folder.write("a.txt", std::string(4000, 'a')), folder / "out");
  prepare(options, Logger());
  const TrainingData data = open_data({.directory = options.output.string(), .context = 8});
  /// The prepared rows, with a token that no tokenizer of 257 has in one split.
  class Foreign final : public InstanceSource {
   public:
    Foreign(const InstanceSource& source, Split where) : source_(source), where_(where) {}
    int64_t context() const override { return source_.context(); }
    int64_t instances(Split split) const override { return source_.instances(split); }
    void read(Split split, int64_t epoch, int64_t instance,
              std::span<int32_t> tokens) const override {
      source_.read(split, epoch, instance, tokens);
      if (split == where_) tokens.back() = 1 << 20;
    }
    void will_need(Split, int64_t, int64_t) const override {}
    std::string location(Split, int64_t, int64_t, int64_t) const override { return "foreign"; }
    std::string fingerprint() const override { return source_.fingerprint(); }
    std::string description() const override { return "foreign"; }

   private:
    const InstanceSource& source_;
    Split where_;
  };
  const InstanceSource& source = *data.sources.front().instances;
  ASSERT_GT(source.instances(Split::held_out), 0);
  for (const Split split : {Split::train, Split::held_out}) {
    EXPECT_THAT(
        error_of([&] { ngram_baseline(Foreign(source, split), 257); }),
        ::testing::HasSubstr("foreign has the token 1048576, but its tokenizer has 257 tokens"));
  }
}

}  // namespace
}  // namespace tessera
