#include "data/sentencepiece/character_map.h"

#include <cstring>

#include <simdjson.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

// A unit has 32 bits. It is either a node (the byte that leads to it, a bit that is set if a rule
// ends there, and the offset of its children) or the value of a rule, with the highest bit set. An
// offset has 22 bits, and one more bit says that it counts in units of 256.
uint32_t label(uint32_t unit) { return unit & (1U << 31 | 0xFFU); }
bool is_value(uint32_t unit) { return unit >> 31 != 0; }
bool ends_rule(uint32_t unit) { return (unit & 1U << 8) != 0; }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }
uint32_t value(uint32_t unit) { return unit & ~(1U << 31); }

}  // namespace

CharacterMap::CharacterMap(std::string_view compiled, const std::string& origin) {
  if (compiled.empty()) return;
  uint32_t array_bytes = 0;
  constexpr size_t kHeaderBytes = sizeof array_bytes;
  if (compiled.size() >= kHeaderBytes) std::memcpy(&array_bytes, compiled.data(), kHeaderBytes);
  if (array_bytes < sizeof(uint32_t) || compiled.size() < kHeaderBytes + array_bytes) {
    throw Error("{} is damaged: its precompiled_charsmap of {} bytes says that {} are its rules",
                origin, compiled.size(), array_bytes);
  }
  units_.resize(array_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), compiled.data() + kHeaderBytes, units_.size() * sizeof(uint32_t));
  replacements_ = compiled.substr(kHeaderBytes + array_bytes);
  for (size_t index = 0; index < units_.size(); ++index) check_unit(index, origin);
  for (unsigned char first = 0; first < 0x80; ++first) {
    uint32_t base = offset(units_.front());
    uint32_t unit = 0;
    if (!step(base, static_cast<char>(first), unit)) continue;
    may_replace_[first] = ends_rule(unit);
    for (unsigned char second = 0; second < 0x80; ++second) {
      uint32_t next = base;
      may_replace_[first] = may_replace_[first] || step(next, static_cast<char>(second), unit);
    }
  }
}

/// Throws Error unless everything that a walk may read exists: the units of the children by any
/// byte, and the replacement.
void CharacterMap::check_unit(size_t index, const std::string& origin) const {
  const uint32_t unit = units_[index];
  if (index > 0 && is_value(unit)) return;
  const uint32_t base = static_cast<uint32_t>(index) ^ offset(unit);
  bool is_valid = (base | 0xFF) < units_.size();
  if (is_valid && ends_rule(unit)) {
    const size_t begin = value(units_[base]);
    is_valid = begin < replacements_.size() && !is_inside_character(replacements_[begin]);
  }
  if (!is_valid) {
    throw Error("{} is damaged: the rule at unit {} of its precompiled_charsmap leads nowhere",
                origin, index);
  }
}

bool CharacterMap::step(uint32_t& base, char byte, uint32_t& unit) const {
  const uint32_t index = base ^ static_cast<unsigned char>(byte);
  if (label(units_[index]) != static_cast<unsigned char>(byte)) return false;
  unit = units_[index];
  base = index ^ offset(unit);
  return true;
}

CharacterMap::Match CharacterMap::find(std::string_view text) const {
  if (empty()) return {};
  size_t length = 0;
  size_t begin = 0;
  uint32_t base = offset(units_.front());
  uint32_t unit = 0;
  size_t i = 0;
  for (; i < text.size() && step(base, text[i], unit); ++i) {
    if (!ends_rule(unit)) continue;
    length = i + 1;
    begin = value(units_[base]);
  }
  const bool may_be_longer = i == text.size();
  if (length == 0) return {0, {}, may_be_longer};
  const std::string_view replacement = std::string_view(replacements_).substr(begin);
  return {length, replacement.substr(0, replacement.find('\0')), may_be_longer};
}

bool CharacterMap::makes_valid_utf8() const {
  return simdjson::validate_utf8(replacements_.data(), replacements_.size());
}

}  // namespace tessera
