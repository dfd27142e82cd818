#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace tessera {

/// The options of read_slice() and PlainText.
struct ReadOptions {
  std::string text_field = "text";    // see JsonLineParser
  bool fail_on_invalid_utf8 = false;  // otherwise broken bytes become U+FFFD and are counted
  /// The longest JSONL line, in bytes. Longer ones are bad lines. This bounds the memory.
  size_t longest_line = size_t{128} << 20;
};

/// A JSONL line that gave no document.
struct BadLine {
  int64_t file = 0;    // index in Corpus::files
  int64_t offset = 0;  // bytes from the start of the file; of the unpacked file if it is compressed
  std::string reason;
  bool operator==(const BadLine&) const = default;
};

/// The number of bad lines that are recorded with their offset. The others are only counted.
inline constexpr size_t kNamedBadLines = 5;

/// The counts of what was read.
struct ReadStatistics {
  int64_t documents = 0;
  int64_t empty_documents = 0;  // documents without text, which are left out
  int64_t bad_lines = 0;
  int64_t invalid_utf8 = 0;  // number of replacements made
  std::vector<BadLine> first_bad_lines;

  void add(const ReadStatistics& other);  // keeps at most kNamedBadLines bad lines
  bool operator==(const ReadStatistics&) const = default;
};

/// A function that receives a document piece by piece. A piece is valid UTF-8 of at most
/// kLongestPiece bytes and is valid during the call. `ends_document` is set for the last piece,
/// which may be empty. Other empty pieces come now and then, so that the sink can stop the reading
/// of many bytes without text.
using PieceSink = std::function<void(std::string_view piece, bool ends_document)>;

/// The longest piece. It bounds a tokenizer's memory, whatever the length of a document.
inline constexpr size_t kLongestPiece = size_t{256} << 10;

/// Returns the start of `text`, at most `maximum` bytes, which must be at least 4. It is cut after
/// a line end if possible, else before a space, else between two characters.
std::string_view first_piece(std::string_view text, size_t maximum);

/// Streams the documents of a slice to `sink`. A plain-text file is one document, even if it is
/// read in several slices. A JSONL document belongs to the slice in which its line starts. A
/// byte-order mark at the start of a file is not text. Blank JSONL lines are skipped. A compressed
/// file is unpacked as it is read. Memory: one JSONL line at a time, of at most
/// options.longest_line bytes, a buffer, and what Decompressor needs. Throws Error when the file
/// cannot be read, is damaged or no longer has the size that was scanned, and on broken UTF-8 if
/// `options` say so.
void read_slice(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
                ReadStatistics& statistics, const PieceSink& sink);

/// The byte-order mark. It may be at the start of a file and is not text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Throws Error naming the line that contains byte `offset` of the file's content.
[[noreturn]] void refuse_broken_utf8(const CorpusFile& file, int64_t offset);

/// Returns "corpus/a.jsonl:17: reason". Reads the file to count its lines.
std::string describe_bad_line(const Corpus& corpus, const BadLine& line);

}  // namespace tessera
