#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace tessera {

struct ReadOptions {
  std::string text_field = "text";    // see JsonLineParser
  bool fail_on_invalid_utf8 = false;  // otherwise broken bytes become U+FFFD and are counted
  /// Bytes; a longer JSONL line gives no document, so that memory is bounded whatever a file holds.
  size_t longest_line = size_t{128} << 20;
};

/// A JSONL line that gave no document.
struct BadLine {
  int64_t file = 0;    // index in Corpus::files
  int64_t offset = 0;  // bytes from the start of the file, unpacked where it is compressed
  std::string reason;

  bool operator==(const BadLine&) const = default;
};

/// How many bad lines are remembered with their place; the others are only counted.
inline constexpr size_t kNamedBadLines = 5;

struct ReadStatistics {
  int64_t documents = 0;
  int64_t empty_documents = 0;  // documents without text; they are left out
  int64_t bad_lines = 0;
  int64_t invalid_utf8 = 0;  // replacements made
  std::vector<BadLine> first_bad_lines;

  void add(const ReadStatistics& other);
  bool operator==(const ReadStatistics&) const = default;
};

/// Receives a document piece by piece: valid UTF-8 of at most kLongestPiece bytes, valid during the
/// call; `ends_document` with the last one, which may be empty. Empty pieces that do not end the
/// document come now and then, so that the sink can stop a long run of bytes
/// that hold no text.
using PieceSink = std::function<void(std::string_view piece, bool ends_document)>;

/// So that the memory a tokenizer needs is bounded however long a document is.
inline constexpr size_t kLongestPiece = size_t{256} << 10;

/// The start of `text`, at most `maximum` bytes, cut after a line end, else before a space, else
/// between two characters.
std::string_view first_piece(std::string_view text, size_t maximum);

/// Streams the documents of a slice to `sink`. A plain-text file is one document, whichever slices
/// it is read in; a JSONL document belongs to the slice in which its line starts. A byte-order mark
/// at a file's start is no text. Blank JSONL lines are skipped. A compressed file is unpacked as it
/// is read. Memory: one JSONL line at a time, of at most options.longest_line bytes, and what
/// Decompressor takes. Throws Error when the file cannot be read, is damaged or no longer the one
/// that was scanned, and on broken UTF-8 if `options` say so.
void read_slice(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
                ReadStatistics& statistics, const PieceSink& sink);

/// What stands at a file's begin and is no text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Throws Error naming the line that holds the byte `offset` of what the file contains.
[[noreturn]] void refuse_broken_utf8(const CorpusFile& file, int64_t offset);

/// "corpus/a.jsonl:17: reason", the line's number counted by reading the file.
std::string describe_bad_line(const Corpus& corpus, const BadLine& line);

}  // namespace tessera
