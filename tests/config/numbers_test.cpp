#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/config_test_support.h"
#include "config/phases.h"
#include "config/sections.h"
#include "state/schedule.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

struct NumericKey {
  std::string path;
  Rule rule;
};

/// The numeric keys of all sections, and those of the first table of each list.
std::vector<NumericKey> numeric_keys() {
  std::vector<NumericKey> found;
  const auto note = [&](const std::string& prefix, const std::vector<Key>& keys) {
    for (const Key& key : keys) {
      if (std::holds_alternative<IntegerRule>(key.rule) ||
          std::holds_alternative<NumberRule>(key.rule)) {
        found.push_back({prefix + key.name, key.rule});
      }
    }
  };
  for (const ConfigSection& section : all_sections()) {
    note(section.name + ".", section.keys);
    for (const TableList& list : section.lists) {
      note(fmt::format("{}.{}.0.", section.name, list.name), list.keys(0));
    }
  }
  return found;
}

/// The ends of a rule's range, with their neighbours, and numbers that break arithmetic.
std::vector<ConfigValue> odd_values(const Rule& rule) {
  std::vector<ConfigValue> values;
  if (const auto* whole = std::get_if<IntegerRule>(&rule)) {
    for (const int64_t end : {whole->minimum, whole->maximum}) {
      values.insert(values.end(), {end, end / 2, end / 3});
    }
    for (const int64_t value : {std::numeric_limits<int64_t>::max(), int64_t{-1}, int64_t{0},
                                int64_t{1}, int64_t{7}, int64_t{1} << 31, int64_t{1} << 40}) {
      values.emplace_back(value);
    }
    return values;
  }
  const auto& number = std::get<NumberRule>(rule);
  for (const double end : {number.minimum, number.maximum}) {
    values.insert(values.end(), {end, std::nextafter(end, -1e308), std::nextafter(end, 1e308)});
  }
  for (const double value : {0.0, -1.0, 1e-320, 1e-45, 1e-38, 1e-9, 1 - 1e-11, 1e18, 1e39, 1e308}) {
    values.emplace_back(value);
  }
  return values;
}

/// The values of a configuration that a kernel reads in f32, or adds up in 64 bits.
void require_sound(const RunConfig& config) {
  for (const ConfigSection& section : all_sections()) {
    for (const Key& key : section.keys) {
      const auto* rule = std::get_if<NumberRule>(&key.rule);
      if (rule == nullptr || !rule->is_f32) continue;
      const auto exact = std::get<double>(key.get(config));
      const auto used = static_cast<float>(exact);
      RC_ASSERT(std::isfinite(used) && std::fpclassify(used) != FP_SUBNORMAL);
      RC_ASSERT((used == 0) == (exact == 0));
    }
  }
  const OptimizerConfig& optimizer = config.optimizer;
  for (const double decay : {optimizer.beta1, optimizer.beta2, optimizer.muon_momentum}) {
    // What is left to 1 has two digits at least.
    RC_ASSERT(std::abs((1 - static_cast<float>(decay)) / (1 - decay) - 1) < 0.01);
  }
  double tokens = 0;
  for (const RunPhase& phase : phases_of(config)) {
    tokens += static_cast<double>(phase.steps()) * static_cast<double>(phase.tokens_of_step());
    for (const int64_t step : {int64_t{1}, phase.config.train.steps}) {
      const double rate = learning_rate(phase.config.optimizer, step, phase.config.train.steps);
      RC_ASSERT(rate >= 0 && rate <= phase.config.optimizer.learning_rate +
                                         phase.config.optimizer.minimum_learning_rate);
    }
  }
  RC_ASSERT(tokens < 0x1p62);
}

RC_GTEST_PROP(Numbers, OfEveryKeyAreRefusedWithTheirRangeOrSound, ()) {
  const NumericKey key = *rc::gen::elementOf(numeric_keys());
  const ConfigValue value = *rc::gen::elementOf(odd_values(key.rule));
  std::vector<std::string> overrides{"model.family=" + *rc::gen::elementOf(words_of<Family>())};
  if (key.path.starts_with("data.sources")) overrides.emplace_back(R"(data.sources=[{path="a"}])");
  if (key.path.starts_with("train.phases")) {
    overrides.emplace_back("optimizer.warmup_steps=0");  // a phase may be shorter than the default
    overrides.emplace_back(key.path.ends_with("tokens") ? "train.phases=[{name=\"x\"}]"
                                                        : "train.phases=[{steps=40}]");
  }
  overrides.push_back(key.path + "=" + value_text(value));
  RunConfig config;
  try {
    config = parse("", overrides);
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    RC_LOG() << overrides.back() << ": " << message << '\n';
    RC_ASSERT(message.find(name) != std::string::npos);
    return;
  }
  require_sound(config);
}

TEST(Numbers, AreRefusedAsF32RoundsThem) {
  EXPECT_THAT(message_of("", {"optimizer.beta2=0.99999999999"}),
              HasSubstr("expected a number of at least 0 and at most 0.99999"));
  EXPECT_THAT(message_of("", {"optimizer.learning_rate=1e-60"}),
              HasSubstr("optimizer.learning_rate: found 1e-60; expected a number above 0 and at "
                        "most 1000000; fp32, in which it is used, rounds it to 0"));
  EXPECT_THAT(message_of("", {"model.capacity_factor=1e18"}),
              HasSubstr("0 or a number from 0.001 to 65536"));
  EXPECT_THAT(message_of("", {"model.capacity_factor=1e-300"}), HasSubstr("0 or a number from"));
  EXPECT_THAT(message_of("", {"model.initialization_cutoff=1e-30"}),
              HasSubstr("0 or a number from 0.01 to 1000000"));
  EXPECT_THAT(message_of("", {R"(run.directory="a\u0000b")"}),
              HasSubstr("without the character 0"));
}

TEST(Numbers, WhoseProductsExceed64BitsAreRefused) {
  EXPECT_THAT(message_of("", {"train.steps=1099511627776", "train.global_batch=1073741824",
                              "train.micro_batch=1"}),
              HasSubstr("train.steps (1099511627776)"));
  EXPECT_THAT(message_of("", {"model.hidden_size=16777216", "model.experts=65536",
                              "model.expert_size=16777216"}),
              HasSubstr("parameters; expected fewer than"));
}

/// The default minimum may be above a rate that never falls to it.
TEST(Numbers, AConstantScheduleHasNoMinimumLearningRate) {
  EXPECT_EQ(parse("", {"optimizer.schedule=constant", "optimizer.learning_rate=1e-6"})
                .optimizer.learning_rate,
            1e-6);
}

}  // namespace
}  // namespace tessera
