#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/read_file.h"
#include "base/utf8.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/offset_map.h"

namespace tessera {

/// A reader of an uncompressed file of plain text, from any byte offset on. Broken UTF-8 becomes
/// U+FFFD. An OffsetMap maps offsets of the repaired text to offsets of the file.
class PlainText {
 public:
  /// Both arguments must outlive this object. Throws Error when the file cannot be read or has
  /// changed since it was scanned.
  PlainText(const CorpusFile& file, const ReadOptions& options)
      : file_(file), options_(options), opened_(file.path) {
    require_unchanged(file, opened_.size());
    const int64_t mark = static_cast<int64_t>(kByteOrderMark.size());
    if (opened_.size() >= mark && raw_bytes(0, mark) == kByteOrderMark) begin_ = mark;
  }

  /// Returns the offset at which the text begins: after a byte-order mark, if there is one.
  int64_t begin() const { return begin_; }
  int64_t end() const { return file_.size; }

  /// Returns the first offset of the text at or after `offset` that is not inside a character,
  /// valid or broken. Text before such an offset is repaired in the same way whatever follows.
  int64_t next_cut(int64_t offset) const {
    if (offset <= begin_) return begin_;
    if (offset >= end()) return end();
    std::array<char, kLongestCharacter> bytes;
    const std::span<char> read =
        std::span(bytes).first(std::min(bytes.size(), static_cast<size_t>(end() - offset)));
    opened_.read_at(offset, std::as_writable_bytes(read));
    return offset + static_cast<int64_t>(next_character({read.data(), read.size()}, 0));
  }

  /// Returns the repaired text between two offsets that next_cut() gave, valid until the next call.
  /// `offset` is the number of bytes that earlier calls returned. Adds to `offsets` the file
  /// offsets of the text's parts. Throws Error on broken UTF-8 if the options say so.
  std::string_view read(int64_t begin, int64_t end, int64_t offset, OffsetMap& offsets) {
    const std::string_view raw = raw_bytes(begin, end);
    offsets.add(offset, begin, /*unchanged=*/true);
    int64_t replaced = 0;
    const std::string_view text = repair_utf8(raw, repaired_, replaced);
    if (replaced == 0) return text;
    if (options_.fail_on_invalid_utf8) refuse_broken_utf8(file_, begin);
    // Walk over the characters to find the offsets at which broken ones were replaced.
    for (size_t raw_offset = 0, repaired_offset = 0; raw_offset < raw.size();) {
      const Utf8Character character = first_character(raw.substr(raw_offset));
      const auto add_run = [&](bool unchanged) {
        offsets.add(offset + static_cast<int64_t>(repaired_offset),
                    begin + static_cast<int64_t>(raw_offset), unchanged);
      };
      if (!character.valid) add_run(/*unchanged=*/false);
      raw_offset += character.length;
      repaired_offset += character.valid ? character.length : kReplacementBytes;
      if (!character.valid) add_run(/*unchanged=*/true);
    }
    return text;
  }

  /// Returns the number of replacements that read() makes between two offsets that next_cut() gave.
  int64_t count_broken(int64_t begin, int64_t end) {
    int64_t replaced = 0;
    while (begin < end) {
      const int64_t next = std::min(end, next_cut(std::min(end, begin + kCountedAtOnce)));
      repair_utf8(raw_bytes(begin, next), repaired_, replaced);
      begin = next;
    }
    return replaced;
  }

 private:
  static constexpr int64_t kCountedAtOnce = int64_t{1} << 20;  // bytes, by count_broken()
  static constexpr size_t kReplacementBytes = 3;               // of U+FFFD

  /// Returns the bytes between two offsets, valid until the next call.
  std::string_view raw_bytes(int64_t begin, int64_t end) {
    raw_.resize(static_cast<size_t>(end - begin));
    opened_.read_at(begin, std::as_writable_bytes(std::span(raw_)));
    return raw_;
  }

  const CorpusFile& file_;
  const ReadOptions& options_;
  ReadFile opened_;
  int64_t begin_ = 0;
  std::string raw_;
  std::string repaired_;
};

}  // namespace tessera
