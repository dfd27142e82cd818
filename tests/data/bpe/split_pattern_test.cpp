#include "data/bpe/split_pattern.h"

#include <set>

#include "data/bpe/fixtures.h"
#include "data/support.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, std::string_view text) {
  const SplitPattern split(pattern, "test");
  SplitPattern::Scratch scratch;
  std::vector<std::string> found;
  for (size_t begin = 0; begin < text.size();) {
    const auto match = split.find(text, begin, scratch);
    if (!match) break;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    begin = match->end;
  }
  return found;
}

std::string refusal(const std::string& pattern) {
  return error_of([&] { SplitPattern(pattern, "tokenizer.json"); });
}

/// Characters of scripts that are in use were assigned long ago; a pattern may miss newer ones.
/// Debian 12's PCRE2 knows Unicode 14, so that the letters of Unicode 15 and 16 are none to it.
constexpr size_t kMostUnknown = 10000;

class CodePoints : public ::testing::TestWithParam<const char*> {};

/// Every code point, as Oniguruma sees it within the `tokenizers` library.
TEST_P(CodePoints, AreMatchedAsByTheLibrary) {
  std::set<uint32_t> expected;
  const auto table = fixture_json("code_points.json").at("matched").at(GetParam());
  for (const auto& range : table) {
    for (uint32_t code = range.at(0); code <= range.at(1).get<uint32_t>(); ++code) {
      expected.insert(code);
    }
  }
  const SplitPattern split(GetParam(), "test");
  const SplitPattern assigned(R"(\P{Cn})", "test");
  SplitPattern::Scratch scratch;
  size_t unknown = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code == '\n' || (code >= 0xD800 && code < 0xE000)) continue;  // not in the fixture
    std::string text;
    append_utf8(text, code);
    const bool found = split.find(text, 0, scratch).has_value();
    if (found == expected.contains(code)) continue;
    EXPECT_FALSE(assigned.find(text, 0, scratch)) << "differs at an assigned code point, " << code;
    ++unknown;
  }
  EXPECT_LE(unknown, kMostUnknown);
}

INSTANTIATE_TEST_SUITE_P(SplitPattern, CodePoints,
                         ::testing::Values(R"(\p{L})", R"(\p{N})", R"(\s)", R"(\p{M})", R"(\p{Lu})",
                                           R"(\p{Ll})", R"(\p{Lt})", R"(\p{Lm})", R"(\p{Lo})",
                                           R"(\p{P})", R"(\p{S})", R"(\p{Z})", R"(\d)", "(?i:s)",
                                           "(?i:[dmtlver])"));

TEST(SplitPattern, FindsMatchesOneAfterAnother) {
  EXPECT_EQ(matches(R"( ?\p{L}+|\s+(?!\S)|\s+)", "ab cé   d"),
            (std::vector<std::string>{"ab", " cé", "  ", " d"}));
  EXPECT_EQ(matches("a++b?|c{2}", "aab ccc"), (std::vector<std::string>{"aab", "cc"}));
  EXPECT_TRUE(matches("x", "abc").empty());
}

TEST(SplitPattern, ADotAndAClassTakeNoHalfCharacters) {
  EXPECT_EQ(matches(".", "é\n中"), (std::vector<std::string>{"é", "中"}));
  EXPECT_EQ(matches("[^a]", "aé中"), (std::vector<std::string>{"é", "中"}));
}

TEST(SplitPattern, LongWhiteSpaceTakesNoQuadraticTime) {
  const std::string text = std::string(size_t{1} << 20, ' ') + "x";
  const auto found = matches(R"([^\r\n\p{L}\p{N}]?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)", text);
  EXPECT_EQ(found.size(), 2U);
}

TEST(SplitPattern, APatternThatWouldNeverEndIsAnError) {
  EXPECT_THAT(error_of([] { matches("(?:a|a|b)+(?:c|d)", std::string(200, 'a')); }),
              HasSubstr("match limit exceeded"));
}

TEST(SplitPattern, RefusesWhatIsNoPattern) {
  EXPECT_THAT(refusal("(a"), HasSubstr("not a regular expression"));
  EXPECT_THAT(refusal("a)"), HasSubstr("not a regular expression"));
  EXPECT_THAT(refusal("a*"), HasSubstr("matches the empty text"));
  EXPECT_THAT(refusal("+"), HasSubstr("not a regular expression"));
}

TEST(PatternSyntax, KeepsWhatMeansTheSame) {
  for (const char* pattern :
       {"a|b", "(?:ab)+", "(?=x)y", "(?<!x)y", "a{2,3}b{2}c{1,}", "[^a-z\\p{L}\\]]", "\\(\\*\\?",
        "a+?b*+", "一-龥", "(?i:'s|'t)", "(?i:[sdmt])", "\\r\\n\\t\\d"}) {
    EXPECT_EQ(pattern_for_pcre2(pattern, "test"), pattern);
  }
  EXPECT_EQ(pattern_for_pcre2("\\s[\\S]", "test"), "\\p{White_Space}[\\P{White_Space}]");
}

TEST(PatternSyntax, RefusesWhatDialectsTakeDifferently) {
  for (const char* pattern :
       {"^a",          "a$",       "\\w+",  "\\b",     "\\h",         "\\x41",    "\\1",
        "(?<name>a)",  "(?>a)",    "(?#c)", "(*FAIL)", "[[:alpha:]]", "[a&&b]",   "[]a]",
        "[a",          "\\",       "a{2}+", "a{2,3}?", "a{,3}",       "{",        "\\p{Han}",
        "\\p{^L}",     "\\pL",     "\\p{",  "(?i:ss)", "(?i:é)",      "(?i:aFi)", "(?i:(?:st))",
        "(?i:\\p{L})", "(?i:[é])", "(?i)a"}) {
    EXPECT_THAT(refusal(pattern), HasSubstr("not supported")) << pattern;
  }
}

}  // namespace
}  // namespace tessera
