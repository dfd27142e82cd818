#include "data/bpe/nfc.h"

#include <algorithm>
#include <array>
#include <utility>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tessera {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr size_t kLongestDecomposition = 32;  // Unicode promises 4 at most
constexpr uint32_t kFirstUnstable = 0x300;    // all below are stable (NFC_Quick_Check)

struct Character {
  uint32_t code;
  size_t length;  // bytes
};

/// Returns the first character of `text`, which is valid UTF-8 and not empty.
Character first_code(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(text[i])}; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const auto tail = [&](size_t i) { return byte(i) & 0x3FU; };
  if (lead < 0xE0) return {(lead & 0x1FU) << 6 | tail(1), 2};
  if (lead < 0xF0) return {(lead & 0xFU) << 12 | tail(1) << 6 | tail(2), 3};
  return {(lead & 0x7U) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

int combining_class(int32_t code) { return utf8proc_get_property(code)->combining_class; }

/// Writes the full canonical decomposition: one character if there is none. Returns its length.
size_t decompose(uint32_t code, std::array<int32_t, kLongestDecomposition>& result) {
  int boundary = 0;
  const auto length = utf8proc_decompose_char(
      static_cast<int32_t>(code), result.data(), static_cast<utf8proc_ssize_t>(result.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  TESSERA_CHECK(length > 0 && static_cast<size_t>(length) <= result.size(),
                "U+{:04X} cannot be decomposed", code);
  return static_cast<size_t>(length);
}

void compose(std::vector<int32_t>& codes) {
  const auto length =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TESSERA_CHECK(length >= 0, "composing failed: {}", utf8proc_errmsg(length));
  codes.resize(static_cast<size_t>(length));
}

/// Sorts consecutive marks by their classes. Marks of equal class keep their order.
void order_marks(std::vector<int32_t>& codes) {
  std::vector<std::pair<int, int32_t>> marks;
  for (size_t i = 0; i < codes.size(); ++i) {
    marks.clear();
    for (size_t end = i; end < codes.size() && combining_class(codes[end]) != 0; ++end) {
      marks.emplace_back(combining_class(codes[end]), codes[end]);
    }
    std::ranges::stable_sort(marks, {}, &std::pair<int, int32_t>::first);
    for (size_t k = 0; k < marks.size(); ++k) codes[i + k] = marks[k].second;
    i += marks.size();
  }
}

}  // namespace

NfcNormalizer::NfcNormalizer() : stable_(kCodePoints / 64) {
  std::vector<bool> composes_backwards(kCodePoints);
  std::vector<int32_t> composed;
  std::array<int32_t, kLongestDecomposition> parts{};
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;  // surrogates are not characters
    const size_t count = decompose(code, parts);
    for (size_t i = 1; i < count; ++i) composes_backwards[static_cast<uint32_t>(parts[i])] = true;
    composed.assign(parts.begin(), parts.begin() + static_cast<int64_t>(count));
    if (count > 1) compose(composed);
    const bool same = composed.size() == 1 && static_cast<uint32_t>(composed.front()) == code;
    if (same && combining_class(static_cast<int32_t>(code)) == 0) {
      stable_[code / 64] |= uint64_t{1} << code % 64;
    }
  }
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (composes_backwards[code]) stable_[code / 64] &= ~(uint64_t{1} << code % 64);
  }
}

size_t NfcNormalizer::skip_stable(std::string_view text, size_t begin, size_t& last) const {
  while (begin < text.size()) {
    const auto [code, length] = first_code(text.substr(begin));
    if (code >= kFirstUnstable && !is_stable(code)) break;
    last = begin;
    begin += length;
  }
  return begin;
}

size_t NfcNormalizer::skip_unstable(std::string_view text, size_t begin) const {
  while (begin < text.size()) {
    const auto [code, length] = first_code(text.substr(begin));
    if (is_stable(code)) break;
    begin += length;
  }
  return begin;
}

BpeNormalizer::Change NfcNormalizer::next_change(std::string_view text, size_t begin) const {
  size_t last = begin;
  const size_t end = skip_stable(text, begin, last);
  if (end == text.size()) return {end, end};
  // The last stable character before an unstable part may compose with it.
  return {last, skip_unstable(text, end)};
}

size_t NfcNormalizer::last_cut(std::string_view text, size_t begin) const {
  for (size_t offset = text.size(); offset > begin;) {
    offset = character_begin(text, offset - 1);
    if (is_stable(first_code(text.substr(offset)).code)) return offset;
  }
  return 0;
}

void NfcNormalizer::append_normalized(std::string_view part, std::string& result) const {
  std::vector<int32_t> codes;
  std::array<int32_t, kLongestDecomposition> pieces{};
  while (!part.empty()) {
    const auto [code, length] = first_code(part);
    const size_t count = decompose(code, pieces);
    codes.insert(codes.end(), pieces.begin(), pieces.begin() + static_cast<int64_t>(count));
    part.remove_prefix(length);
  }
  order_marks(codes);
  compose(codes);
  std::array<utf8proc_uint8_t, 4> bytes{};
  for (const int32_t code : codes) {
    const auto size = utf8proc_encode_char(code, bytes.data());
    result.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
  }
}

}  // namespace tessera
