#include "data/sentencepiece/character_map.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <simdjson.h>

#include "data/sentencepiece/models.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

const std::string& compiled_nfkc_cf() {
  static const std::string compiled = [] {
    const std::string model = testing::train_model({{"model_type", "char"},
                                                    {"vocab_size", "200"},
                                                    {"normalization_rule_name", "nmt_nfkc_cf"}});
    return read_sentencepiece_description(model, "a model").character_map;
  }();
  return compiled;
}

TEST(CharacterMap, FindsTheLongestRule) {
  const CharacterMap map(compiled_nfkc_cf(), "a model");
  const auto expect = [&](std::string_view text, size_t length, std::string_view replacement) {
    const CharacterMap::Match match = map.find(text);
    EXPECT_EQ(match.length, length) << text;
    EXPECT_EQ(match.replacement, replacement) << text;
  };
  expect("Ab", 1, "a");
  expect("ab", 0, "");
  expect("e\xCC\x81x", 3, "é");
  expect("E\xCC\x81x", 3, "é");
  expect("\tx", 1, " ");
  expect("ﬁne", 3, "fi");
  expect("", 0, "");
  expect("\xEF", 0, "");
  EXPECT_TRUE(map.may_replace('A'));
  EXPECT_TRUE(map.may_replace('\t'));
  EXPECT_FALSE(map.may_replace('e'));  // only before an accent
  EXPECT_TRUE(map.makes_valid_utf8());
}

TEST(CharacterMap, KnowsReplacementsThatAreBrokenUtf8) {
  std::string compiled = compiled_nfkc_cf();
  const size_t accented = compiled.rfind(std::string("\0\xC3\xA9\0", 4));  // é
  ASSERT_NE(accented, std::string::npos);
  compiled[accented + 2] = 'x';
  const CharacterMap map(compiled, "a model");
  EXPECT_EQ(map.find("e\xCC\x81").replacement, "\xC3x");
  EXPECT_FALSE(map.makes_valid_utf8());
}

TEST(CharacterMap, WithoutRulesFindsNone) {
  const CharacterMap map("", "a model");
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.find("A").length, 0U);
  EXPECT_FALSE(map.may_replace('A'));
}

TEST(CharacterMap, RefusesWhatIsDamaged) {
  std::string compiled = compiled_nfkc_cf();
  uint32_t array_bytes = 0;
  std::memcpy(&array_bytes, compiled.data(), sizeof array_bytes);
  const auto error = [&] { return error_of([&] { CharacterMap(compiled, "x.model"); }); };
  compiled.resize(array_bytes - 1);
  EXPECT_THAT(error(), HasSubstr("x.model is damaged: its precompiled_charsmap of"));
  compiled = "ab";
  EXPECT_THAT(error(), HasSubstr("precompiled_charsmap of 2 bytes"));
  compiled = std::string(4, '\0') + "text";
  EXPECT_THAT(error(), HasSubstr("precompiled_charsmap"));
  compiled = compiled_nfkc_cf().substr(0, 4 + array_bytes);  // no replacements
  EXPECT_THAT(error(), HasSubstr("leads nowhere"));
  compiled = compiled_nfkc_cf();
  compiled[4 + 3] = '\x7F';  // the root's children are far away
  EXPECT_THAT(error(), HasSubstr("the rule at unit 0 of its precompiled_charsmap leads nowhere"));
}

/// The library would read beyond its memory. Ours gives characters of the replacements as a whole.
RC_GTEST_PROP(CharacterMap, ADamagedMapIsRefusedOrGivesCharacters, ()) {
  std::string compiled = compiled_nfkc_cf();
  uint32_t array_bytes = 0;
  std::memcpy(&array_bytes, compiled.data(), sizeof array_bytes);
  for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {  // the replacements stay as they are
    compiled[*rc::gen::inRange<size_t>(4, 4 + array_bytes)] = *rc::gen::arbitrary<char>();
  }
  try {
    const CharacterMap map(compiled, "a model");
    RC_ASSERT(map.makes_valid_utf8());
    for (uint32_t code = 1; code < 0x10000; ++code) {
      std::string character;
      append_utf8(character, code);
      const std::string_view replacement = map.find(character).replacement;
      RC_ASSERT(simdjson::validate_utf8(replacement.data(), replacement.size()));
    }
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tessera
