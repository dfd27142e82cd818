#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/read_file.h"
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
  PlainText(const CorpusFile& file, const ReadOptions& options);

  /// Returns the offset at which the text begins: after a byte-order mark, if there is one.
  int64_t begin() const { return begin_; }
  int64_t end() const { return file_.size; }

  /// Returns the first offset of the text at or after `offset` that is not inside a character,
  /// valid or broken. Text before such an offset is repaired in the same way whatever follows.
  int64_t cut(int64_t offset) const;

  /// Returns the repaired text between two offsets that cut() gave, valid until the next call.
  /// `offset` is the number of bytes that earlier calls returned. Adds to `offsets` the file
  /// offsets of the text's parts. Throws Error on broken UTF-8 if the options say so.
  std::string_view read(int64_t begin, int64_t end, int64_t offset, OffsetMap& offsets);

  /// Returns the number of replacements that read() makes between two offsets that cut() gave.
  int64_t count_broken(int64_t begin, int64_t end);

 private:
  /// Returns the bytes between two offsets, valid until the next call.
  std::string_view raw_bytes(int64_t begin, int64_t end);

  const CorpusFile& file_;
  const ReadOptions& options_;
  ReadFile opened_;
  int64_t begin_ = 0;
  std::string raw_;
  std::string repaired_;
};

}  // namespace tessera
