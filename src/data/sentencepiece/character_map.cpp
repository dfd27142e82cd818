#include "data/sentencepiece/character_map.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <simdjson.h>

#include "base/error.h"

namespace tessera {
namespace {

/// The largest maps in use have tens of thousands of rules of a few characters; a damaged one might
/// spell sequences without end.
constexpr size_t kMostRuleBytes = size_t{4} << 20;
constexpr size_t kLongestRule = 256;

struct Rule {
  std::string text;
  size_t replacement;  // where it begins
};

/// All rules of a double array as darts-clone writes it: units of 32 bits, a child of the node at n
/// by the byte b at n ^ offset ^ b.
class RuleReader {
 public:
  RuleReader(std::string_view array, const std::string& origin)
      : units_(array.size() / sizeof(uint32_t)), origin_(origin) {
    std::memcpy(units_.data(), array.data(), units_.size() * sizeof(uint32_t));
    read_below(offset(unit(0)));
  }

  std::vector<Rule> take() { return std::move(rules_); }

 private:
  static uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }
  static bool has_value(uint32_t unit) { return (unit & 1U << 8) != 0; }
  static uint32_t label(uint32_t unit) { return unit & (1U << 31 | 0xFFU); }

  uint32_t unit(uint32_t index) const {
    if (index < units_.size()) return units_[index];
    throw Error("{} is damaged: unit {} of its precompiled_charsmap is beyond its {} units",
                origin_, index, units_.size());
  }

  /// Reads what begins with `text_`, whose children have their places around `base`.
  void read_below(uint32_t base) {
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t index = base ^ byte;
      const uint32_t child = unit(index);
      if (label(child) != byte) continue;
      text_ += static_cast<char>(byte);
      bytes_ += text_.size();
      if (text_.size() > kLongestRule || bytes_ > kMostRuleBytes) {
        throw Error("{} is damaged: the rules of its precompiled_charsmap have no end", origin_);
      }
      const uint32_t next = index ^ offset(child);
      if (has_value(child)) rules_.push_back({text_, unit(next) & ~(1U << 31)});
      read_below(next);
      text_.pop_back();
    }
  }

  std::vector<uint32_t> units_;
  const std::string& origin_;
  std::string text_;
  size_t bytes_ = 0;
  std::vector<Rule> rules_;
};

}  // namespace

CharacterMap::CharacterMap(std::string_view compiled, const std::string& origin) {
  std::vector<Rule> rules;
  std::string_view texts;
  if (!compiled.empty()) {
    uint32_t array_bytes = 0;
    if (compiled.size() >= sizeof array_bytes) {
      std::memcpy(&array_bytes, compiled.data(), sizeof array_bytes);
    }
    if (compiled.size() < sizeof array_bytes + array_bytes) {
      throw Error("{} is damaged: its precompiled_charsmap of {} bytes is shorter than it says",
                  origin, compiled.size());
    }
    rules = RuleReader(compiled.substr(sizeof array_bytes, array_bytes), origin).take();
    texts = compiled.substr(sizeof array_bytes + array_bytes);
  }
  std::vector<ByteTrie::Key> keys;
  std::unordered_map<size_t, int32_t> known;  // replacements by where they begin
  for (const Rule& rule : rules) {
    if (rule.replacement >= texts.size()) {
      throw Error("{} is damaged: a rule of its precompiled_charsmap has no replacement", origin);
    }
    const auto [place, is_new] =
        known.emplace(rule.replacement, static_cast<int32_t>(replacements_.size()));
    if (is_new) {
      const std::string_view from = texts.substr(rule.replacement);
      replacements_.emplace_back(from.substr(0, from.find('\0')));
    }
    keys.push_back({rule.text, place->second});
    const auto first = static_cast<unsigned char>(rule.text.front());
    const bool goes_on_in_ascii =
        rule.text.size() == 1 || static_cast<unsigned char>(rule.text[1]) < 0x80;
    if (first < 0x80 && goes_on_in_ascii) may_replace_[first] = true;
  }
  trie_ = std::make_unique<ByteTrie>(std::move(keys));
}

bool CharacterMap::makes_valid_utf8() const {
  return std::ranges::all_of(replacements_, [](const std::string& text) {
    return simdjson::validate_utf8(text.data(), text.size());
  });
}

}  // namespace tessera
