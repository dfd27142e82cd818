#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/strict_json.h"
#include "data/bpe/split_pattern.h"

// Translator walks over a pattern once, from left to right. It copies what means the same in both
// dialects, rewrites \s, and refuses what may differ.

namespace tessera {
namespace {

/// The general categories of Unicode that mean the same in both dialects.
constexpr std::array<std::string_view, 36> kCategories{
    "C",  "Cc", "Cf", "Cn", "Co", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf",
    "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

/// ASCII letters for which Oniguruma, if it ignores case, also matches a single character: U+00DF
/// for "ss", U+FB01 for "fi".
constexpr std::array<std::string_view, 5> kLigatures{"ff", "fi", "fl", "ss", "st"};

constexpr std::array<std::string_view, 6> kGroups{"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& origin)
      : pattern_(pattern), origin_(origin) {}

  std::string run() {
    while (offset_ < pattern_.size()) translate_next();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(size_t length, std::string_view why) const {
    throw Error("{}: the pattern {} has {} at byte {}, {}; this is not supported", origin_,
                in_quotes(pattern_), in_quotes(pattern_.substr(offset_, length)), offset_, why);
  }

  bool is_next(std::string_view text) const { return pattern_.substr(offset_).starts_with(text); }

  void copy(size_t length) {
    result_ += pattern_.substr(offset_, length);
    offset_ += length;
  }

  void translate_next() {
    const char c = pattern_[offset_];
    if (c == '^' || c == '$') refuse(1, "which is about lines in some dialects and not in others");
    if (c == '\\') {
      escape();
    } else if (c == '(') {
      open_group();
    } else if (c == ')') {
      // PCRE2 refuses a parenthesis without its partner.
      if (!group_ignores_case_.empty()) group_ignores_case_.pop_back();
      copy(1);
    } else if (c == '[') {
      character_class();
    } else if (c == '*' || c == '+' || c == '?') {
      copy(1);
      if (is_next("+") || is_next("?")) copy(1);
    } else if (c == '{') {
      interval();
    } else {
      literal();
    }
  }

  void literal() {
    if (ignores_case()) {
      if (static_cast<unsigned char>(pattern_[offset_]) >= 0x80) {
        refuse(1, "which is not ASCII, without regard to case");
      }
      for (const std::string_view letters : kLigatures) {
        if (is_next_in_any_case(letters)) {
          refuse(letters.size(), "for which there are ligatures, without regard to case");
        }
      }
    }
    copy(1);
  }

  bool ignores_case() const { return !group_ignores_case_.empty() && group_ignores_case_.back(); }

  bool is_next_in_any_case(std::string_view letters) const {
    const std::string_view rest = pattern_.substr(offset_, letters.size());
    return std::ranges::equal(rest, letters, {}, [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
  }

  void open_group() {
    if (is_next("(*")) refuse(2, "a verb of one dialect");
    size_t length = 1;
    if (is_next("(?")) {
      const auto known = std::ranges::find_if(kGroups, [&](auto group) { return is_next(group); });
      if (known == kGroups.end()) refuse(4, "a group of another kind than (?:, (?i: and looks");
      length = known->size();
    }
    group_ignores_case_.push_back(ignores_case() || is_next("(?i:"));
    copy(length);
  }

  /// Handles {2}, {2,} or {2,3}. Dialects differ in what a "+" or "?" after them means.
  void interval() {
    size_t end = offset_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && pattern_[end] >= '0' && pattern_[end] <= '9') ++end;
      return end > begin;
    };
    const bool counted = digits();
    if (counted && end < pattern_.size() && pattern_[end] == ',') {
      ++end;
      digits();
    }
    if (!counted || end >= pattern_.size() || pattern_[end] != '}') {
      refuse(1, "which begins no quantifier {n}, {n,} or {n,m}");
    }
    copy(end + 1 - offset_);
    if (is_next("+") || is_next("?")) refuse(1, "after a quantifier in braces");
  }

  void character_class() {
    copy(1);
    if (is_next("^")) copy(1);
    if (is_next("]")) refuse(1, "as the first of a class");
    while (offset_ < pattern_.size() && !is_next("]")) {
      if (is_next("[")) refuse(1, "within a class");
      if (is_next("&&")) refuse(2, "the intersection of classes");
      if (ignores_case() && static_cast<unsigned char>(pattern_[offset_]) >= 0x80) {
        refuse(1, "which is not ASCII, without regard to case");
      }
      if (is_next("\\")) {
        escape();
      } else {
        copy(1);
      }
    }
    if (offset_ == pattern_.size()) refuse(0, "the end of the text within a class");
    copy(1);
  }

  void escape() {
    if (offset_ + 1 == pattern_.size()) refuse(1, "with nothing to escape");
    const char c = pattern_[offset_ + 1];
    if (c == 's' || c == 'S') {
      // PCRE2's \s includes the Mongolian vowel separator, which is no longer white space.
      result_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      offset_ += 2;
    } else if (c == 'p' || c == 'P') {
      category();
    } else if (c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'd' || c == 'D') {
      copy(2);
    } else if (is_letter_or_digit(c) || static_cast<unsigned char>(c) >= 0x80) {
      refuse(2, "an escape that dialects take differently");
    } else {
      copy(2);
    }
  }

  void category() {
    const size_t end = pattern_.find('}', offset_);
    const std::string_view name =
        end == std::string_view::npos || pattern_.substr(offset_ + 2, 1) != "{"
            ? std::string_view()
            : pattern_.substr(offset_ + 3, end - offset_ - 3);
    if (std::ranges::find(kCategories, name) == kCategories.end()) {
      refuse(end == std::string_view::npos ? 2 : end + 1 - offset_,
             "a property that is no general category of Unicode");
    }
    if (ignores_case()) refuse(2, "a property, without regard to case");
    copy(end + 1 - offset_);
  }

  std::string_view pattern_;
  const std::string& origin_;
  size_t offset_ = 0;
  std::string result_;
  std::vector<bool> group_ignores_case_;  // for each open group: true if it ignores case
};

}  // namespace

std::string pattern_for_pcre2(std::string_view pattern, const std::string& origin) {
  return Translator(pattern, origin).run();
}

}  // namespace tessera
