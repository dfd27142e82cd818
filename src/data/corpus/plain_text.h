#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/read_file.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/place_map.h"

namespace tessera {

/// A file of plain text that is not compressed, to be read from any place on. Places are bytes of
/// the file.
class PlainText {
 public:
  /// Both must outlive it. Throws Error when the file cannot be read or is no longer the one that
  /// was scanned.
  PlainText(const CorpusFile& file, const ReadOptions& options);

  /// Where the text begins: after a byte-order mark.
  int64_t begin() const { return begin_; }
  int64_t end() const { return file_.size; }

  /// The first place from `place` on that is in no character, be it broken: what stands before it
  /// is repaired as it is without what follows.
  int64_t cut(int64_t place) const;

  /// The text between two cuts, repaired, valid until the next call. Tells `places` where its parts
  /// stand in the file, it being read from `place` on of a text. Throws Error on broken UTF-8 if
  /// the options say so.
  std::string_view read(int64_t begin, int64_t end, int64_t place, PlaceMap& places);

  /// The replacements that read() makes between two cuts.
  int64_t count_broken(int64_t begin, int64_t end);

 private:
  /// The bytes between two places, valid until the next call.
  std::string_view part(int64_t begin, int64_t end);

  const CorpusFile& file_;
  const ReadOptions& options_;
  ReadFile content_;
  int64_t begin_ = 0;
  std::string raw_;
  std::string repaired_;
};

}  // namespace tessera
