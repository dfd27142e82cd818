#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/read_file.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/place_map.h"

namespace tessera {

/// Reads a file of plain text that is not compressed, from any place. Places are byte offsets in
/// the file.
class PlainText {
 public:
  /// Both arguments must outlive this object. Throws Error when the file cannot be read or has
  /// changed since it was scanned.
  PlainText(const CorpusFile& file, const ReadOptions& options);

  /// Where the text begins: after a byte-order mark, if there is one.
  int64_t begin() const { return begin_; }
  int64_t end() const { return file_.size; }

  /// Returns the first place at or after `place` that does not lie inside a character, valid or
  /// broken. The text before such a place is repaired in the same way whatever follows it.
  int64_t cut(int64_t place) const;

  /// Returns the repaired text between two cuts, valid until the next call. Records in `places`
  /// where its parts stand in the file. `place` is the place of this text in the text that the
  /// caller reads in pieces. Throws Error on broken UTF-8 if the options say so.
  std::string_view read(int64_t begin, int64_t end, int64_t place, PlaceMap& places);

  /// Returns the number of replacements that read() makes between two cuts.
  int64_t count_broken(int64_t begin, int64_t end);

 private:
  /// Returns the bytes between two places, valid until the next call.
  std::string_view part(int64_t begin, int64_t end);

  const CorpusFile& file_;
  const ReadOptions& options_;
  ReadFile content_;
  int64_t begin_ = 0;
  std::string raw_;
  std::string repaired_;
};

}  // namespace tessera
