#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/config_test_support.h"
#include "config/sections.h"
#include "engine/rematerialize.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

struct Place {
  std::string section;
  Key key;
};

/// The keys whose rule is of one kind.
template <typename Kind>
std::vector<Place> keys_with() {
  std::vector<Place> found;
  for (const ConfigSection& section : all_sections()) {
    for (const Key& key : section.keys) {
      if (std::holds_alternative<Kind>(key.rule)) found.push_back({section.name, key});
    }
  }
  return found;
}

void expect_refused(const Place& place, const ConfigValue& value) {
  const std::string text =
      fmt::format("[{}]\n{} = {}\n", place.section, place.key.name, value_text(value));
  try {
    parse(text);
  } catch (const Error& error) {
    const std::string message = error.what();
    RC_ASSERT(message.find(place.section + "." + place.key.name) != std::string::npos);
    RC_ASSERT(message.find("found " + value_text(value)) != std::string::npos);
    RC_ASSERT(message.find("expected " + rule_text(place.key.rule)) != std::string::npos);
    return;
  }
  RC_FAIL("accepted: " + text);
}

RC_GTEST_PROP(Keys, RefuseWholeNumbersOutOfRange, ()) {
  const auto place = *rc::gen::elementOf(keys_with<IntegerRule>());
  const auto rule = std::get<IntegerRule>(place.key.rule);
  const int64_t distance = *rc::gen::inRange<int64_t>(1, int64_t{1} << 40);
  const bool above = rule.maximum != IntegerRule{}.maximum && *rc::gen::arbitrary<bool>();
  expect_refused(place, above ? rule.maximum + distance : rule.minimum - distance);
}

RC_GTEST_PROP(Keys, RefuseNumbersOutOfRange, ()) {
  const auto place = *rc::gen::elementOf(keys_with<NumberRule>());
  const auto rule = std::get<NumberRule>(place.key.rule);
  const double distance = std::ldexp(*rc::gen::inRange(1, 1000), -5);
  const bool above = rule.maximum != NumberRule{}.maximum && *rc::gen::arbitrary<bool>();
  expect_refused(place, above ? 2 * rule.maximum + distance : rule.minimum - distance);
}

TEST(Keys, RefuseTheEndsThatARangeExcludes) {
  for (const Place& place : keys_with<NumberRule>()) {
    const auto rule = std::get<NumberRule>(place.key.rule);
    const auto accepts = [&](double value) {
      try {
        return checked_value(rule, value) == ConfigValue(value);
      } catch (const Error&) {
        return false;
      }
    };
    EXPECT_EQ(accepts(rule.minimum), !rule.excludes_minimum) << place.key.name;
    EXPECT_EQ(accepts(rule.maximum), !rule.excludes_maximum) << place.key.name;
  }
}

/// A value that a rule accepts.
ConfigValue accepted_value(const Rule& rule) {
  if (const auto* integer = std::get_if<IntegerRule>(&rule)) {
    const int64_t most = std::min(integer->maximum, integer->minimum + (int64_t{1} << 40));
    return *rc::gen::inRange<int64_t>(integer->minimum, most);
  }
  if (const auto* number = std::get_if<NumberRule>(&rule)) {
    const double width = std::min(number->maximum - number->minimum, 1e6);
    return number->minimum + width * *rc::gen::inRange(1, 1 << 20) / (1 << 20) * 0.999;
  }
  if (const auto* text = std::get_if<TextRule>(&rule)) {
    if (!text->choices.empty()) return *rc::gen::elementOf(text->choices);
    // Letters of every kind that needs an escape, none above 0x7f: other bytes must be UTF-8.
    return *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
  }
  if (const auto* list = std::get_if<ListRule>(&rule)) {
    std::vector<std::string> names;
    for (const std::string& choice : list->choices) {
      if (*rc::gen::arbitrary<bool>()) names.push_back(choice);
    }
    return names;
  }
  if (const auto* either = std::get_if<NumberOrTextRule>(&rule)) {
    return accepted_value(*rc::gen::arbitrary<bool>()
                              ? Rule(IntegerRule{either->minimum, either->maximum})
                              : Rule(TextRule{}));
  }
  if (std::holds_alternative<BytesRule>(rule)) {
    return bytes_text(*rc::gen::inRange<int64_t>(0, int64_t{1} << 50));
  }
  if (const auto* numbers = std::get_if<NumbersRule>(&rule)) {
    if (!numbers->words.empty() && *rc::gen::arbitrary<bool>()) {
      return *rc::gen::elementOf(numbers->words);
    }
    return *rc::gen::container<std::vector<int64_t>>(
        rc::gen::inRange(numbers->minimum, numbers->maximum + 1));
  }
  return *rc::gen::arbitrary<bool>();
}

RC_GTEST_PROP(Keys, WhatIsWrittenReadsBackToTheSameValues, ()) {
  // One key at a time, because keys drawn at random would contradict each other.
  const std::string family = *rc::gen::elementOf(words_of<Family>());
  RunConfig config = parse("", {"model.family=" + family});
  const std::vector<ConfigSection> sections = all_sections();
  const ConfigSection section = *rc::gen::elementOf(sections);
  const Key changed = *rc::gen::elementOf(section.keys);
  changed.set(config, accepted_value(changed.rule));
  try {
    validate(config);
  } catch (const Error&) {
    RC_DISCARD("keys contradict each other");
  }
  const std::string text = to_toml(config);
  const RunConfig again = parse(text);
  for (const ConfigSection& each : sections) {
    for (const Key& key : each.keys) RC_ASSERT(key.get(again) == key.get(config));
  }
  RC_ASSERT(to_toml(again) == text);
}

TEST(Keys, DefaultsObeyTheirOwnRules) {
  for (const std::string& family : words_of<Family>()) {
    RunConfig config;
    config.model = family_preset(from_word<Family>(family));
    EXPECT_NO_THROW(validate(config));
    for (const ConfigSection& section : all_sections()) {
      for (const Key& key : section.keys) {
        EXPECT_EQ(checked_value(key.rule, key.get(config)), key.get(config)) << key.name;
      }
    }
  }
}

TEST(Keys, DescriptionNamesEveryKeyWithItsDefaultAndRule) {
  const std::string text = describe_keys();
  for (const ConfigSection& section : all_sections()) {
    EXPECT_THAT(text, HasSubstr("[" + section.name + "] " + section.help));
    for (const Key& key : section.keys) {
      EXPECT_THAT(text, HasSubstr("  " + key.name + " = "));
      EXPECT_THAT(text, HasSubstr(key.help + " (" + rule_text(key.rule) + ")"));
    }
  }
  EXPECT_THAT(text, HasSubstr("  steps = 300\n"));
  EXPECT_THAT(text,
              HasSubstr("  layers = 32 (llama), 32 (mixtral), 16 (olmo), 16 (olmoe), 40 (zaya)\n"));
  EXPECT_THAT(text, HasSubstr("  precision = \"bf16\"\n"));
}

}  // namespace
}  // namespace tessera
