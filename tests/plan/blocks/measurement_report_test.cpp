#include "plan/blocks/measurement_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr MixtureBlockSizes kSizes{
    .tokens = 100, .hidden = 8, .experts = 4, .experts_per_token = 2, .expert_size = 16};

/// 2e9 operations forward in 0.5 s and 6e9 in 2 s: 4 and 3 GFLOP/s.
BlockProgram block() {
  BlockProgram block;
  block.flops = {.forward = 2e9, .backward = 4e9, .repeated = 7e9};
  block.parameters = 1234;
  return block;
}

BlockMeasurement measurement() {
  return {.forward_seconds = {0.5, 0.25, 1},
          .forward_backward_seconds = {2, 1, 4},
          .arena_bytes = 1 << 20,
          .peak_memory_bytes = 1 << 21,
          .integer_outputs = {{50, 75, 25, 50}}};
}

MeasuredOn machine() { return {{"Some CPU", {"avx2"}, 1, 2, 3, 2}, Precision::bf16, 16e9}; }

MixtureReport mixture_report(const BlockMeasurement& measured = measurement()) {
  return {kSizes, block(), measured, {}, machine()};
}

AttentionReport attention_report(const AttentionBlockSizes& sizes) {
  AttentionReport report{.lengths = {}, .on = machine()};
  report.lengths.push_back({sizes, block(), measurement()});
  return report;
}

TEST(MeasurementReport, RatesAreThoseOfTheMedianRun) {
  const PassRates rates = pass_rates(block(), measurement());
  EXPECT_DOUBLE_EQ(rates.forward, 4e9);
  EXPECT_DOUBLE_EQ(rates.forward_backward, 3e9);
  const std::string text = mixture_report().text();
  EXPECT_THAT(text, HasSubstr("500 ms (300 ms-900 ms)"));
  EXPECT_THAT(text, ContainsRegex("forward +500 ms .* 4\\.0 +25\\.0 %"));
  EXPECT_THAT(text, ContainsRegex("forward and backward +2 s .* 3\\.0 +18\\.8 %"));
  EXPECT_THAT(text, HasSubstr("1.0 MiB in weights, gradients and activations, 2.0 MiB"));
  EXPECT_THAT(attention_report({.tokens = 64, .documents = 3}).text(),
              HasSubstr("64 tokens in 3 documents"));
}

/// 200 choices of four experts: 50 each where the load is balanced.
TEST(MeasurementReport, LoadIsThatOfTheFullestExpert) {
  const auto json = nlohmann::json::parse(mixture_report().json());
  EXPECT_DOUBLE_EQ(json["expert_load"], 1.5);
  EXPECT_THAT(mixture_report().text(), HasSubstr("1.50 times the balanced load"));
}

TEST(MeasurementReport, JsonTellsWhatWasMeasured) {
  for (const auto& text : {mixture_report().json(), attention_report({}).json()}) {
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["parameters"], 1234);
    EXPECT_EQ(json["forward_flops"], 2e9);
    EXPECT_EQ(json["flops"], 6e9);
    EXPECT_EQ(json["forward_seconds"], nlohmann::json({0.5, 0.25, 1.0}));
    EXPECT_EQ(json["forward_backward_seconds"], nlohmann::json({2.0, 1.0, 4.0}));
    EXPECT_EQ(json["arena_bytes"], 1 << 20);
    EXPECT_EQ(json["peak_memory_bytes"], 1 << 21);
    EXPECT_EQ(json["gemm_peak"], 16e9);
  }
}

TEST(BlockPicture, NamesPassesAndSizes) {
  const std::string picture = testing::texts_of(mixture_report().picture());
  for (const char* text :
       {"|Mixture of experts on Some CPU (2 threads, bf16)|", "|forward|", "|forward and backward|",
        "|run|", "|ms|", "|1|", "|2|", "|3|", "100 tokens of 8, 4 experts of 16, 2 a token"}) {
    EXPECT_THAT(picture, HasSubstr(text));
  }
  const std::vector<std::pair<int64_t, PassRates>> rates{{1024, {4e9, 3e9}}, {4096, {5e9, 4e9}}};
  const std::string rates_picture =
      testing::texts_of(attention_picture({.documents = 7}, rates, machine()));
  for (const char* text : {"|Causal attention on Some CPU (2 threads, bf16)|", "|tokens|",
                           "|GFLOP/s|", "|forward|", "7 documents"}) {
    EXPECT_THAT(rates_picture, HasSubstr(text));
  }
}

TEST(BlockPicture, ShowsASingleLengthAndASingleRun) {
  const std::vector<std::pair<int64_t, PassRates>> one{{64, {2e9, 1e9}}};
  EXPECT_THAT(testing::texts_of(attention_picture({}, one, machine())), HasSubstr("|tokens|"));
  BlockMeasurement single = measurement();
  single.forward_seconds.resize(1);
  single.forward_backward_seconds.resize(1);
  EXPECT_THAT(testing::texts_of(mixture_report(single).picture()), HasSubstr("|run|"));
}

}  // namespace
}  // namespace tessera
