// Mixtures whose routers may choose to skip all experts, top 1, on any mesh.
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/mixture_program.h"

namespace tessera::testing {
namespace {

constexpr int64_t kBatchTokens = 48;
constexpr int kSkipped = 8;  // the class after eight experts

std::vector<std::vector<int>> top_one(int (*choose)(int token)) {
  std::vector<std::vector<int>> choices;
  for (int t = 0; t < kBatchTokens; ++t) choices.push_back({choose(t)});
  return choices;
}

/// Tokens that skip, by themselves and all those of a rank.
std::map<std::string, std::vector<std::vector<int>>> skipping_workloads() {
  return {{"every third", top_one([](int t) { return t % 3 == 1 ? kSkipped : t / 3 % kSkipped; })},
          {"whole ranks", top_one([](int t) { return t < 24 ? kSkipped : t % kSkipped; })},
          {"all but one expert", top_one([](int t) { return t % 4 == 0 ? 5 : kSkipped; })}};
}

std::vector<double> counts_of_classes(const std::vector<std::vector<int>>& choices) {
  std::vector<double> counts(kSkipped + 1);
  for (const std::vector<int>& token : choices) ++counts[static_cast<size_t>(token[0])];
  return counts;
}

/// Expects of the output's rows zeros where `nothing` says so, p x of the class that skips where a
/// token skipped for its input, and otherwise what an expert gave.
void expect_rows(const MixtureRun& run, const MixtureSetting& setting,
                 const std::vector<bool>& nothing, const std::string& what) {
  const auto results = run.results();
  const auto x = MixtureRun::tokens_of(setting);
  constexpr int64_t kWidth = kSkipped + 1;  // the hidden size, and the classes
  for (int64_t t = 0; t < kBatchTokens; ++t) {
    const auto token = static_cast<size_t>(t);
    const auto row = std::span(results.at("y")).subspan(token * kWidth, kWidth);
    const bool skips = setting.choices[token][0] == kSkipped;
    const double p = results.at("probabilities")[token * kWidth + kSkipped];
    for (size_t i = 0; i < kWidth; ++i) {
      const double input = x.data<double>()[token * kWidth + i];
      if (nothing[token]) {
        EXPECT_EQ(row[i], 0) << what << ", token " << t;
      } else if (skips) {
        EXPECT_DOUBLE_EQ(row[i], p * input) << what << ", token " << t;
      } else {
        EXPECT_NE(row[i], 0) << what << ", token " << t;
      }
    }
  }
}

class SkippingMixture : public ::testing::TestWithParam<std::tuple<ExpertExchange, SkipExpert>> {
 protected:
  ExpertExchange exchange() const { return std::get<0>(GetParam()); }
  SkipExpert skip() const { return std::get<1>(GetParam()); }

  std::vector<bool> without_output(const std::vector<std::vector<int>>& choices) const {
    std::vector<bool> nothing;
    for (const std::vector<int>& token : choices) {
      nothing.push_back(skip() == SkipExpert::zero && token[0] == kSkipped);
    }
    return nothing;
  }
};
INSTANTIATE_TEST_SUITE_P(, SkippingMixture,
                         ::testing::Combine(::testing::Values(ExpertExchange::all_gather,
                                                              ExpertExchange::all_to_all),
                                            ::testing::Values(SkipExpert::zero, SkipExpert::input)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", word(std::get<0>(info.param)),
                                              word(std::get<1>(info.param)));
                         });

TEST_P(SkippingMixture, EveryTokenAndEveryGradientIsAsOnOneRank) {
  for (const auto& [name, choices] : skipping_workloads()) {
    MixtureSetting setting{.choices = choices, .skip = skip(), .typed = false};
    const MixtureRun one(setting);
    EXPECT_EQ(one.counts(), counts_of_classes(choices)) << name;
    expect_rows(one, setting, without_output(choices), name);
    setting.typed = true;
    setting.layout.exchange = exchange();
    for (const NamedMesh& mesh : mixture_meshes()) {
      setting.mesh = mesh.sizes;
      const MixtureRun run(setting);
      EXPECT_EQ(run.counts(), counts_of_classes(choices)) << name << " on " << mesh.name;
      expect_near(run.results(), one.results(), name + " on " + mesh.name);
    }
  }
}

/// An expert may take 8 tokens. 17 choose expert 2, and 24, more than that, skip.
TEST_P(SkippingMixture, TokensThatSkipTakeNoPlaceOfAnExpert) {
  MixtureSetting setting{.choices = top_one([](int t) {
                           if (t % 2 == 1) return kSkipped;
                           return t % 6 == 0 ? t / 6 : 2;
                         }),
                         .capacity_factor = 8.0 * kSkipped / kBatchTokens,
                         .skip = skip(),
                         .typed = false};
  std::vector<bool> nothing = without_output(setting.choices);
  int taken = 0;
  for (size_t t = 0; t < kBatchTokens; ++t) {
    if (setting.choices[t][0] == 2 && ++taken > 8) nothing[t] = true;
  }
  EXPECT_EQ(taken, 17);
  const MixtureRun one(setting);
  EXPECT_EQ(one.counts(), (std::vector<double>{1, 1, 17, 1, 1, 1, 1, 1, 24}));
  expect_rows(one, setting, nothing, "one rank");
  setting.typed = true;
  setting.layout.exchange = exchange();
  for (const NamedMesh& mesh : mixture_meshes()) {
    setting.mesh = mesh.sizes;
    const MixtureRun run(setting);
    EXPECT_EQ(run.counts(), one.counts()) << mesh.name;
    expect_near(run.results(), one.results(), mesh.name);
  }
}

TEST_P(SkippingMixture, AllTokensMaySkip) {
  for (const NamedMesh& mesh : mixture_meshes()) {
    const MixtureSetting setting{.mesh = mesh.sizes,
                                 .layout = {.exchange = exchange()},
                                 .choices = top_one([](int) { return kSkipped; }),
                                 .skip = skip()};
    const MixtureRun run(setting);
    EXPECT_EQ(run.counts(), counts_of_classes(setting.choices)) << mesh.name;
    expect_rows(run, setting, without_output(setting.choices), mesh.name);
    int weights = 0;
    for (const auto& [name, gradient] : run.results()) {
      if (name.find("experts") == std::string::npos) continue;
      ++weights;
      EXPECT_THAT(gradient, ::testing::Each(0)) << name << " on " << mesh.name;
    }
    EXPECT_EQ(weights, 3);
  }
}

}  // namespace
}  // namespace tessera::testing
