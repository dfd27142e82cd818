#include <chrono>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/bpe/bpe_normalizer.h"
#include "data/bpe/fixtures.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

const NfcNormalizer& nfc() {
  static const NfcNormalizer normalizer;
  return normalizer;
}

std::string normalized(std::string_view text) {
  std::string buffer;
  return std::string(nfc().normalize(text, buffer));
}

/// Bases, marks of several classes and Hangul's parts, in any order.
std::string any_marks() {
  const auto codes = *rc::gen::container<std::vector<uint32_t>>(rc::gen::element<uint32_t>(
      'a', 'e', 'o', 'q', 'x', 0xE9, 0x1E69, 0x300, 0x301, 0x302, 0x307, 0x308, 0x316, 0x323, 0x327,
      0x328, 0x344, 0x345, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x915, 0x93C, 0x958, 0x304B,
      0x3099, 0x212B, 0xFB1D, 0x9C7, 0x9BE, 0x1D15E, 0xF900));
  std::string text;
  for (const uint32_t code : codes) append_utf8(text, code);
  return text;
}

RC_GTEST_PROP(Nfc, TwiceIsOnce, ()) {
  const std::string once = normalized(any_marks());
  RC_ASSERT(normalized(once) == once);
}

/// What stands between two stable characters has no part in what lies beyond them.
RC_GTEST_PROP(Nfc, PartsAreIndependent, ()) {
  const std::string first = any_marks() + "z";
  const std::string second = std::string("z").append(any_marks());
  RC_ASSERT(normalized(first + second) == normalized(first) + normalized(second));
}

TEST(Nfc, KnownForms) {
  EXPECT_EQ(normalized("e\u0301"), "\u00e9");
  EXPECT_EQ(normalized("x e\u0301 y"), "x \u00e9 y");
  EXPECT_EQ(normalized("\u212b"), "\u00c5");
  EXPECT_EQ(normalized("a\u0328\u0301"), "\u0105\u0301");
  EXPECT_EQ(normalized("q\u0307\u0323"), "q\u0323\u0307");  // marks in the order of classes
  EXPECT_EQ(normalized("e\u0323\u0302"), "\u1ec7");         // two marks, one character
  EXPECT_EQ(normalized("\u1100\u1161\u11a8"), "\uac01");    // Hangul
  EXPECT_EQ(normalized("\u0958"), "\u0915\u093c");          // excluded from composition
  EXPECT_EQ(normalized("\u0301a"), "\u0301a");              // a mark with no base
  EXPECT_EQ(normalized("a\u0301\u0301"), "\u00e1\u0301");
}

TEST(Nfc, NormalTextIsNotCopied) {
  const std::string text = "naïve Привет 中文 한글 ¿?";
  std::string buffer;
  EXPECT_EQ(nfc().normalize(text, buffer).data(), text.data());
}

/// Every code point alone, as the `tokenizers` library normalises it.
TEST(Nfc, ChangesWhatTheLibraryChanges) {
  std::set<uint32_t> expected;
  const nlohmann::json table = fixture_json("code_points.json").at("changed_by_nfc");
  for (const auto& range : table) {
    for (uint32_t code = range.at(0); code <= range.at(1).get<uint32_t>(); ++code) {
      expected.insert(code);
    }
  }
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    EXPECT_EQ(normalized(text) != text, expected.contains(code)) << code;
  }
}

TEST(Nfc, HeapsOfMarksTakeNoQuadraticTime) {
  std::string text = "e";
  for (int i = 0; i < 100000; ++i) text += "\u0301\u0323";
  const auto begin = std::chrono::steady_clock::now();
  const std::string result = normalized(text);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(result.size(), text.size() - 1 - 2 + 3);
  EXPECT_TRUE(result.starts_with("\u1eb9\u0323\u0323"));
  EXPECT_TRUE(result.ends_with("\u0301\u0301"));
}

}  // namespace
}  // namespace tessera
