#include "data/bpe/bpe_normalizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

// Form C of a text is made in three steps (Annex 15): decompose each character, sort the marks on
// each letter by their classes, and compose letters with marks. utf8proc does the first and the
// last. Only parts of the text with unstable characters need them. A character is stable if it is
// its own form C, is no mark (class 0) and never composes with the character before it.

constexpr uint32_t kCodePoints = 0x110000;
constexpr size_t kLongestDecomposition = 32;  // in characters; Unicode promises 4 at most
constexpr uint32_t kFirstUnstable = 0x300;    // all below are stable (NFC_Quick_Check)

int combining_class(int32_t code) { return utf8proc_get_property(code)->combining_class; }

/// Writes the full canonical decomposition: one character if there is none. Returns its length.
size_t decompose(uint32_t code, std::array<int32_t, kLongestDecomposition>& result) {
  int boundary = 0;  // utf8proc uses it only for grapheme boundaries
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

std::string_view BpeNormalizer::normalize(std::string_view text, std::string& buffer) const {
  Change change = next_change(text, 0);
  if (change.begin == text.size()) return text;
  buffer.clear();
  size_t copied = 0;  // the bytes of `text` whose normal form is in the buffer
  while (change.begin < text.size()) {
    buffer.append(text.substr(copied, change.begin - copied));
    append_normalized(text.substr(change.begin, change.end - change.begin), buffer);
    copied = change.end;
    change = next_change(text, copied);
  }
  buffer.append(text.substr(copied));
  return buffer;
}

BpeNormalizer::Change SpaceMarks::next_change(std::string_view text, size_t begin) const {
  const size_t space = std::min(text.find(' ', begin), text.size());
  return {space, std::min(space + 1, text.size())};
}

void SpaceMarks::append_normalized(std::string_view, std::string& result) const {
  result += kSpaceMark;
}

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
    const bool is_same = composed.size() == 1 && static_cast<uint32_t>(composed.front()) == code;
    if (is_same && combining_class(static_cast<int32_t>(code)) == 0) {
      stable_[code / 64] |= uint64_t{1} << code % 64;
    }
  }
  for (uint32_t code = 0; code < kCodePoints; ++code) {
    if (composes_backwards[code]) stable_[code / 64] &= ~(uint64_t{1} << code % 64);
  }
}

size_t NfcNormalizer::skip_stable(std::string_view text, size_t begin, size_t& last) const {
  while (begin < text.size()) {
    const std::string_view rest = text.substr(begin);
    const uint32_t code = code_point(rest);
    if (code >= kFirstUnstable && !is_stable(code)) break;
    last = begin;
    begin += character_size(rest);
  }
  return begin;
}

size_t NfcNormalizer::skip_unstable(std::string_view text, size_t begin) const {
  while (begin < text.size() && !is_stable(code_point(text.substr(begin)))) {
    begin += character_size(text.substr(begin));
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
    if (is_stable(code_point(text.substr(offset)))) return offset;
  }
  return 0;
}

void NfcNormalizer::append_normalized(std::string_view part, std::string& result) const {
  std::vector<int32_t> codes;
  std::array<int32_t, kLongestDecomposition> decomposed{};
  while (!part.empty()) {
    const size_t count = decompose(code_point(part), decomposed);
    codes.insert(codes.end(), decomposed.begin(), decomposed.begin() + static_cast<int64_t>(count));
    part.remove_prefix(character_size(part));
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
