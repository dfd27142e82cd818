#include "data/corpus/documents.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/read_file.h"
#include "base/utf8.h"
#include "data/corpus/json_line.h"

// SliceReader cuts the content of a file into lines of JSON Lines or pieces of plain text. It reads
// the content from a ContentReader, which unpacks it. It repairs broken UTF-8, parses JSON lines,
// gives documents to the sink and counts.

namespace tessera {
namespace {

constexpr size_t kCutWindow = size_t{64} << 10;     // bytes to search for a line end to cut at
constexpr size_t kReadAtOnce = size_t{1} << 20;     // bytes
constexpr int64_t kReadBeyond = int64_t{64} << 10;  // bytes past a slice to read for its last line

/// The bytes of a file that give at most one piece: repairing turns one byte into at most three.
constexpr size_t kRawPiece = kLongestPiece / 3;

/// A reader of the content of an input file from start to end. A compressed file is unpacked.
class ContentReader {
 public:
  /// Starts at byte `begin` of the file, which must be 0 if the file is compressed. Throws Error
  /// when the file cannot be read or has changed since it was scanned.
  explicit ContentReader(const CorpusFile& file, int64_t begin = 0) : offset_(begin) {
    if (file.compression == Compression::none) {
      file_ = ReadFile(file.path);
      require_unchanged(file, file_.size());
      return;
    }
    TESSERA_CHECK(begin == 0, "byte {} of the compressed file {}", begin, file.path.string());
    decompressor_ = std::make_unique<Decompressor>(file.path, file.compression);
    require_unchanged(file, decompressor_->compressed_size());
  }

  /// Fills `buffer` and returns the number of bytes read. It is below the buffer's size only at the
  /// end. Throws Error as ReadFile and Decompressor do.
  size_t read(std::span<char> buffer) {
    if (decompressor_) return decompressor_->read(buffer);
    buffer = buffer.first(std::min(buffer.size(), static_cast<size_t>(file_.size() - offset_)));
    file_.read_at(offset_, std::as_writable_bytes(buffer));
    offset_ += static_cast<int64_t>(buffer.size());
    return buffer.size();
  }

 private:
  ReadFile file_;  // open if the file is not compressed
  int64_t offset_ = 0;
  std::unique_ptr<Decompressor> decompressor_;  // set if the file is compressed
};

/// Returns the number of the line that contains byte `offset` of a file's content.
int64_t line_number(const CorpusFile& file, int64_t offset) {
  ContentReader content(file);
  std::string buffer(kReadAtOnce, '\0');
  int64_t lines = 1;
  while (offset > 0) {
    const int64_t filled = std::min(offset, static_cast<int64_t>(content.read(buffer)));
    if (filled == 0) break;
    lines += std::count(buffer.begin(), buffer.begin() + filled, '\n');
    offset -= filled;
  }
  return lines;
}

/// Returns the offset at which plain text is cut if a cut is wanted at offset `wanted`. It is the
/// start of a line; in text without lines, before a space or between two characters. The result
/// never falls as `wanted` grows, so neighbouring slices neither overlap nor leave a gap.
int64_t cut_text(const CorpusFile& file, int64_t wanted) {
  if (wanted == 0 || wanted == file.size) return wanted;
  std::string buffer(kCutWindow, '\0');
  // The byte before `wanted` shows whether a line begins there.
  buffer.resize(ContentReader(file, wanted - 1).read(buffer));
  const std::string_view window = buffer;
  size_t found = window.find('\n');
  if (found != std::string_view::npos) return wanted + static_cast<int64_t>(found);
  found = window.find(' ', 1);
  if (found == std::string_view::npos) found = next_character(window, 1);
  return wanted - 1 + static_cast<int64_t>(found);
}

/// A reader of a slice of a file. It makes documents from the text or the lines, gives them to the
/// sink and counts. A compressed file is read whole and gives the documents of the unpacked file,
/// in the same pieces. Memory: the bytes read at once and the incomplete line.
class SliceReader {
 public:
  SliceReader(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
              ReadStatistics& statistics, const PieceSink& sink)
      : file_(corpus.files[static_cast<size_t>(slice.file)]),
        slice_(slice),
        options_(options),
        statistics_(statistics),
        sink_(sink),
        parser_(options.text_field),
        is_compressed_(file_.compression != Compression::none) {}

  void read() {
    TESSERA_CHECK(!is_compressed_ || (slice_.begin == 0 && slice_.end == file_.size),
                  "a slice of the compressed file {}", file_.path.string());
    if (file_.format == Format::jsonl) {
      read_lines();
    } else {
      read_text();
    }
  }

 private:
  /// Opens the file at byte `begin`. Reading ends at about byte `end`.
  void open(int64_t begin, int64_t end) {
    offset_ = begin;
    end_ = is_compressed_ ? std::numeric_limits<int64_t>::max() : end;
    content_.emplace(file_, begin);
  }

  /// Reads more of the content behind the unused text: up to end_, but at least `min_bytes` and at
  /// most kReadAtOnce. Returns false if the content has ended.
  bool fill(int64_t min_bytes) {
    sink_("", false);  // it may throw, which stops the reading
    const size_t unused = text_.size();
    const int64_t rest = std::max<int64_t>(0, end_ - offset_ - static_cast<int64_t>(unused));
    buffer_.erase(0, buffer_.size() - unused);
    buffer_.resize(unused + std::min(kReadAtOnce, static_cast<size_t>(std::max(rest, min_bytes))));
    buffer_.resize(unused + content_->read(std::span(buffer_).subspan(unused)));
    text_ = buffer_;
    return text_.size() > unused;
  }

  void drop(size_t bytes) {
    text_.remove_prefix(bytes);
    offset_ += static_cast<int64_t>(bytes);
  }

  void read_text() {
    const int64_t begin = is_compressed_ ? 0 : cut_text(file_, slice_.begin);
    open(begin, is_compressed_ ? 0 : cut_text(file_, slice_.end));
    const bool reaches_end = is_compressed_ || end_ == file_.size;
    fill(0);
    if (begin == 0 && text_.starts_with(kByteOrderMark)) drop(kByteOrderMark.size());
    bool has_more = true;
    if (text_.empty()) has_more = fill(0);
    // A file without text, except for a byte-order mark, is an empty document.
    if (!has_more && begin == 0 && reaches_end) ++statistics_.empty_documents;
    while (!text_.empty()) {
      // One byte beyond a piece shows whether the document continues after it.
      while (has_more && text_.size() <= kRawPiece) has_more = fill(0);
      const std::string_view piece = first_piece(text_, kRawPiece);
      const bool ends_document = reaches_end && piece.size() == text_.size();
      emit(repair(piece, offset_), ends_document);
      if (ends_document) ++statistics_.documents;
      drop(piece.size());
    }
  }

  /// Reads the lines that begin in the slice.
  void read_lines() {
    // The line end before the slice's begin shows whether a line begins there.
    const bool starts_inside = slice_.begin > 0;
    open(starts_inside ? slice_.begin - 1 : 0, slice_.end);
    bool ignores_line = starts_inside;  // the current line belongs to another slice or is too long
    size_t searched = 0;  // the bytes of the text that are known to contain no line end
    while (offset_ < end_) {
      const size_t line_end = text_.find('\n', searched);
      if (line_end != std::string_view::npos) {
        if (!ignores_line) add_line(text_.substr(0, line_end));
        ignores_line = false;
        searched = 0;
        drop(line_end + 1);
        continue;
      }
      if (!ignores_line && text_.size() > options_.longest_line) {
        add_line(text_);  // records it as a bad line
        ignores_line = true;
      }
      if (ignores_line) drop(text_.size());
      searched = text_.size();
      if (fill(kReadBeyond)) continue;
      if (!ignores_line && !text_.empty()) add_line(text_);
      return;
    }
  }

  /// Adds one line of JSON Lines without its line end.
  void add_line(std::string_view line) {
    int64_t offset = offset_;
    if (offset == 0 && line.starts_with(kByteOrderMark)) {
      line.remove_prefix(kByteOrderMark.size());
      offset = static_cast<int64_t>(kByteOrderMark.size());
    }
    if (line.size() > options_.longest_line) {
      add_bad_line(offset, fmt::format("a line of more than {} bytes", options_.longest_line));
      return;
    }
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    line = repair(line, offset);
    std::string_view document;
    int64_t replaced = 0;
    if (std::string reason = parser_.parse(line, document, replaced); !reason.empty()) {
      add_bad_line(offset, std::move(reason));
      return;
    }
    if (replaced > 0) count_broken(replaced, offset);
    if (document.empty()) {
      ++statistics_.empty_documents;
      return;
    }
    emit(document, true);
    ++statistics_.documents;
  }

  void add_bad_line(int64_t offset, std::string reason) {
    ++statistics_.bad_lines;
    if (statistics_.first_bad_lines.size() >= kNamedBadLines) return;
    statistics_.first_bad_lines.push_back({slice_.file, offset, std::move(reason)});
  }

  std::string_view repair(std::string_view text, int64_t offset) {
    int64_t replaced = 0;
    const std::string_view result = repair_utf8(text, repaired_, replaced);
    if (replaced > 0) count_broken(replaced, offset);
    return result;
  }

  void count_broken(int64_t count, int64_t offset) {
    if (options_.fail_on_invalid_utf8) refuse_broken_utf8(file_, offset);
    statistics_.invalid_utf8 += count;
  }

  void emit(std::string_view text, bool ends_document) {
    do {
      const std::string_view piece = first_piece(text, kLongestPiece);
      text.remove_prefix(piece.size());
      sink_(piece, ends_document && text.empty());
    } while (!text.empty());
  }

  const CorpusFile& file_;
  const Slice slice_;
  const ReadOptions& options_;
  ReadStatistics& statistics_;
  const PieceSink& sink_;
  std::string repaired_;
  JsonLineParser parser_;
  const bool is_compressed_;
  std::optional<ContentReader> content_;
  int64_t end_ = 0;  // the end offset of the wanted part of the content
  std::string buffer_;
  std::string_view text_;  // the unused text at the end of the buffer
  int64_t offset_ = 0;     // the offset of `text_` in the content
};

}  // namespace

void ReadStatistics::add(const ReadStatistics& other) {
  documents += other.documents;
  empty_documents += other.empty_documents;
  bad_lines += other.bad_lines;
  invalid_utf8 += other.invalid_utf8;
  for (const BadLine& line : other.first_bad_lines) {
    if (first_bad_lines.size() < kNamedBadLines) first_bad_lines.push_back(line);
  }
}

void refuse_broken_utf8(const CorpusFile& file, int64_t offset) {
  throw Error(
      "{} holds broken UTF-8 at or after line {}; mend it, or let broken bytes be replaced by "
      "U+FFFD",
      file.path.string(), line_number(file, offset));
}

std::string_view first_piece(std::string_view text, size_t maximum) {
  if (text.size() <= maximum) return text;
  if (const size_t line_end = text.rfind('\n', maximum - 1); line_end != std::string_view::npos) {
    return text.substr(0, line_end + 1);
  }
  const size_t space = text.rfind(' ', maximum);
  if (space != std::string_view::npos && space > 0) return text.substr(0, space);
  // next_character() may go up to three bytes further.
  return text.substr(0, next_character(text, maximum - 3));
}

void read_slice(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
                ReadStatistics& statistics, const PieceSink& sink) {
  SliceReader(corpus, slice, options, statistics, sink).read();
}

std::string describe_bad_line(const Corpus& corpus, const BadLine& line) {
  const CorpusFile& file = corpus.files[static_cast<size_t>(line.file)];
  return fmt::format("{}:{}: {}", file.path.string(), line_number(file, line.offset), line.reason);
}

}  // namespace tessera
