#include "data/corpus/documents.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/corpus/compression.h"
#include "data/corpus/json_line.h"
#include "data/corpus/utf8.h"

namespace tessera {
namespace {

constexpr size_t kCutWindow = size_t{64} << 10;  // how far a plain-text cut looks for a line end
constexpr size_t kUnpackedAtOnce = size_t{1} << 20;

/// Repairing makes three bytes of one at worst, so this much of a file is at most one piece.
constexpr size_t kRawPiece = kLongestPiece / 3;

/// The number of the line that holds the byte `offset` of what a file contains.
int64_t line_number(const CorpusFile& file, int64_t offset) {
  if (file.compression == Compression::none) {
    const MappedFile map(file.path);
    return 1 + std::count(map.text().begin(), map.text().begin() + offset, '\n');
  }
  Decompressor input(file.path, file.compression);
  std::string buffer(kUnpackedAtOnce, '\0');
  int64_t lines = 1;
  while (offset > 0) {
    const int64_t filled =
        std::min(offset, static_cast<int64_t>(input.read(std::span(buffer.data(), buffer.size()))));
    if (filled == 0) break;
    lines += std::count(buffer.begin(), buffer.begin() + filled, '\n');
    offset -= filled;
  }
  return lines;
}

/// Where a cut that is wanted at `position` is made: at a line start; in plain text without lines,
/// before a space or between two characters. It grows with `position`, so that neighbouring slices
/// neither overlap nor leave a gap.
size_t cut(std::string_view text, int64_t wanted, Format format) {
  const size_t position = static_cast<size_t>(wanted);
  if (position == 0) return 0;
  if (position >= text.size()) return text.size();
  if (format == Format::jsonl) {
    const size_t line_end = text.find('\n', position - 1);
    return line_end == std::string_view::npos ? text.size() : line_end + 1;
  }
  const std::string_view window = text.substr(position - 1, kCutWindow);
  if (const size_t found = window.find('\n'); found != std::string_view::npos) {
    return position + found;
  }
  if (const size_t found = window.find(' ', 1); found != std::string_view::npos) {
    return position - 1 + found;
  }
  return next_character(text, position);
}

/// Makes documents of the text and the lines of one file, however they were read.
class DocumentMaker {
 public:
  DocumentMaker(const Corpus& corpus, int64_t file, const ReadOptions& options,
                ReadStatistics& statistics, const PieceSink& sink)
      : file_(corpus.files[static_cast<size_t>(file)]),
        file_index_(file),
        options_(options),
        statistics_(statistics),
        sink_(sink),
        parser_(options.text_field) {}

  /// A piece of plain text, at most kRawPiece bytes, which stands at `offset` of the file.
  void add_text(std::string_view piece, int64_t offset, bool ends_document) {
    emit(repair(piece, offset), ends_document);
    if (ends_document) ++statistics_.documents;
  }

  void add_empty_document() { ++statistics_.empty_documents; }

  /// One line of JSON Lines without its end.
  void add_line(std::string_view line, int64_t offset) {
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
      add_empty_document();
      return;
    }
    emit(document, true);
    ++statistics_.documents;
  }

  /// Gives the sink an occasion to stop.
  void pause() { sink_("", false); }

 private:
  void add_bad_line(int64_t offset, std::string reason) {
    ++statistics_.bad_lines;
    if (statistics_.first_bad_lines.size() >= kNamedBadLines) return;
    statistics_.first_bad_lines.push_back({file_index_, offset, std::move(reason)});
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
  const int64_t file_index_;
  const ReadOptions& options_;
  ReadStatistics& statistics_;
  const PieceSink& sink_;
  std::string repaired_;
  JsonLineParser parser_;
};

/// Reads the slices of a file that lies open, memory-mapped.
class SliceReader {
 public:
  SliceReader(const CorpusFile& file, const Slice& slice, DocumentMaker& documents)
      : file_(file), slice_(slice), documents_(documents), map_(file.path) {
    require_unchanged(file, static_cast<int64_t>(map_.bytes().size()));
  }

  void read() {
    const std::string_view text = map_.text();
    size_t begin = cut(text, slice_.begin, file_.format);
    const size_t end = cut(text, slice_.end, file_.format);
    if (begin == 0 && text.starts_with(kByteOrderMark))
      begin = std::min(end, kByteOrderMark.size());
    if (file_.format == Format::jsonl) {
      read_lines(begin, end);
    } else {
      read_text(begin, end);
    }
  }

 private:
  void read_text(size_t begin, size_t end) {
    const std::string_view text = map_.text();
    // Exactly one slice with text in it reaches the file's end; a file that is nothing but a
    // byte-order mark is an empty document.
    if (begin == end) {
      const bool only_mark = end == text.size() && slice_.begin == 0 && begin > 0;
      if (only_mark) documents_.add_empty_document();
      return;
    }
    for (size_t at = begin; at < end;) {
      const std::string_view piece = first_piece(text.substr(at, end - at), kRawPiece);
      documents_.add_text(piece, static_cast<int64_t>(at), at + piece.size() == text.size());
      at += piece.size();
    }
  }

  void read_lines(size_t begin, size_t end) {
    const std::string_view text = map_.text();
    while (begin < end) {
      const size_t line_end = std::min(text.find('\n', begin), end);
      documents_.add_line(text.substr(begin, line_end - begin), static_cast<int64_t>(begin));
      begin = line_end + 1;
    }
  }

  const CorpusFile& file_;
  const Slice slice_;
  DocumentMaker& documents_;
  MappedFile map_;
};

/// Reads a compressed file from its start to its end; it gives the documents that the unpacked file
/// would give, in the same pieces. Holds what is unpacked at once and the line that is not at its
/// end yet.
class CompressedReader {
 public:
  CompressedReader(const CorpusFile& file, size_t longest_line, DocumentMaker& documents)
      : file_(file),
        longest_line_(longest_line),
        documents_(documents),
        input_(file.path, file.compression) {
    require_unchanged(file, input_.compressed_size());
  }

  void read() {
    fill();
    if (text_.starts_with(kByteOrderMark)) drop(kByteOrderMark.size());
    if (file_.format == Format::jsonl) {
      read_lines();
    } else {
      read_text();
    }
  }

 private:
  /// Unpacks more behind what is left of the text; false at the end.
  bool fill() {
    documents_.pause();
    const size_t kept = text_.size();
    buffer_.erase(0, buffer_.size() - kept);
    buffer_.resize(kept + kUnpackedAtOnce);
    const size_t filled = input_.read(std::span(buffer_).subspan(kept));
    buffer_.resize(kept + filled);
    text_ = buffer_;
    return filled > 0;
  }

  void drop(size_t bytes) {
    text_.remove_prefix(bytes);
    offset_ += static_cast<int64_t>(bytes);
  }

  void read_text() {
    bool more = true;
    if (text_.empty() && !fill()) {
      documents_.add_empty_document();
      return;
    }
    while (!text_.empty()) {
      // One byte beyond a piece says whether the document goes on after it.
      while (more && text_.size() <= kRawPiece) more = fill();
      const std::string_view piece = first_piece(text_, kRawPiece);
      documents_.add_text(piece, offset_, piece.size() == text_.size());
      drop(piece.size());
    }
  }

  void read_lines() {
    size_t searched = 0;  // of the text, without a line end
    bool too_long = false;
    while (true) {
      const size_t line_end = text_.find('\n', searched);
      if (line_end != std::string_view::npos) {
        if (!too_long) documents_.add_line(text_.substr(0, line_end), offset_);
        too_long = false;
        searched = 0;
        drop(line_end + 1);
        continue;
      }
      if (!too_long && text_.size() > longest_line_) {
        documents_.add_line(text_, offset_);  // which counts it as bad
        too_long = true;
      }
      if (too_long) drop(text_.size());
      searched = text_.size();
      if (fill()) continue;
      if (!too_long && !text_.empty()) documents_.add_line(text_, offset_);
      return;
    }
  }

  const CorpusFile& file_;
  const size_t longest_line_;
  DocumentMaker& documents_;
  Decompressor input_;
  std::string buffer_;
  std::string_view text_;  // the end of the buffer: what is not read yet
  int64_t offset_ = 0;     // of the text in the unpacked file
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

void require_unchanged(const CorpusFile& file, int64_t size) {
  if (size == file.size) return;
  throw Error("{} changed while it was read: {} bytes at the start, {} now; run prepare again",
              file.path.string(), file.size, size);
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
  return text.substr(0, next_character(text, maximum - 3));
}

void read_slice(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
                ReadStatistics& statistics, const PieceSink& sink) {
  const CorpusFile& file = corpus.files[static_cast<size_t>(slice.file)];
  DocumentMaker documents(corpus, slice.file, options, statistics, sink);
  if (file.compression == Compression::none) {
    SliceReader(file, slice, documents).read();
    return;
  }
  TESSERA_CHECK(slice.begin == 0 && slice.end == file.size, "a slice of the compressed file {}",
                file.path.string());
  CompressedReader(file, options.longest_line, documents).read();
}

std::string describe_bad_line(const Corpus& corpus, const BadLine& line) {
  const CorpusFile& file = corpus.files[static_cast<size_t>(line.file)];
  return fmt::format("{}:{}: {}", file.path.string(), line_number(file, line.offset), line.reason);
}

}  // namespace tessera
