#include "data/corpus/documents.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <simdjson.h>

#include "base/error.h"
#include "data/corpus/utf8.h"

namespace tessera {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kCutWindow = size_t{64} << 10;  // how far a plain-text cut looks for a line end

int64_t line_number(std::string_view text, int64_t offset) {
  return 1 + std::count(text.begin(), text.begin() + offset, '\n');
}

/// The value of the escape \uXXXX at `text`'s start, or -1 when there is none.
int escape_value(std::string_view text) {
  int value = -1;
  if (text.size() < 6 || !text.starts_with("\\u")) return -1;
  const auto [end, code] = std::from_chars(text.data() + 2, text.data() + 6, value, 16);
  return code == std::errc() && end == text.data() + 6 ? value : -1;
}

/// Turns each escape of a surrogate without its partner into \ufffd; returns how many there were.
int64_t mend_lone_surrogates(std::string& line) {
  int64_t replaced = 0;
  const std::string_view text = line;
  for (size_t i = 0; (i = text.find('\\', i)) != std::string_view::npos;) {
    const int value = escape_value(text.substr(i));
    if (value < 0xD800 || value > 0xDFFF) {
      i += 2;  // what is escaped may be a backslash
      continue;
    }
    const int next = i + 6 < text.size() ? escape_value(text.substr(i + 6)) : -1;
    if (value < 0xDC00 && next >= 0xDC00 && next <= 0xDFFF) {
      i += 12;
      continue;
    }
    line.replace(i, 6, "\\ufffd");
    ++replaced;
    i += 6;
  }
  return replaced;
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

/// Reads the slices of one file.
class SliceReader {
 public:
  SliceReader(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
              ReadStatistics& statistics, const PieceSink& sink)
      : file_(corpus.files[static_cast<size_t>(slice.file)]),
        slice_(slice),
        options_(options),
        statistics_(statistics),
        sink_(sink),
        map_(file_.path) {
    if (static_cast<int64_t>(map_.bytes().size()) != file_.size) {
      throw Error("{} changed while it was read: {} bytes at the start, {} now; run prepare again",
                  file_.path.string(), file_.size, map_.bytes().size());
    }
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
    const bool ends_file = end == text.size();
    if (begin == end) {
      const bool only_mark = ends_file && slice_.begin == 0 && begin > 0;
      if (only_mark) ++statistics_.empty_documents;
      return;
    }
    for (size_t at = begin; at < end;) {
      const std::string_view piece = first_piece(text.substr(at, end - at), kRawPiece);
      const std::string_view repaired = repair(piece, at);
      emit(repaired, at + piece.size() == text.size());
      at += piece.size();
    }
    if (ends_file) ++statistics_.documents;
  }

  void read_lines(size_t begin, size_t end) {
    const std::string_view text = map_.text();
    while (begin < end) {
      const size_t line_end = std::min(text.find('\n', begin), end);
      read_line(text.substr(begin, line_end - begin), begin);
      begin = line_end + 1;
    }
  }

  void read_line(std::string_view line, size_t offset) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    line = repair(line, offset);
    std::string_view document;
    const std::string reason = parse(line, offset, document);
    if (!reason.empty()) {
      ++statistics_.bad_lines;
      if (statistics_.first_bad_lines.size() < kNamedBadLines) {
        statistics_.first_bad_lines.push_back({slice_.file, static_cast<int64_t>(offset), reason});
      }
      return;
    }
    if (document.empty()) {
      ++statistics_.empty_documents;
      return;
    }
    emit(document, true);
    ++statistics_.documents;
  }

  /// Finds the document in a line, or returns what is wrong with the line.
  std::string parse(std::string_view line, size_t offset, std::string_view& document) {
    simdjson::dom::element root;
    const auto parse_line = [&](std::string_view text) {
      return parser_.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(root);
    };
    simdjson::error_code code = parse_line(line);
    if (code == simdjson::STRING_ERROR) {
      // Some writers of JSON let lone surrogates through; they are treated as broken UTF-8 is.
      std::string mended(line);
      const int64_t replaced = mend_lone_surrogates(mended);
      if (replaced > 0) {
        code = parse_line(mended);
        if (code == simdjson::SUCCESS) count_broken(replaced, offset);
      }
    }
    if (code != simdjson::SUCCESS) return fmt::format("invalid JSON ({})", error_message(code));
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS) return "not a JSON object";
    simdjson::dom::element value;
    if (object.at_key(options_.text_field).get(value) != simdjson::SUCCESS) {
      return fmt::format("no field \"{}\"", options_.text_field);
    }
    if (value.get(document) != simdjson::SUCCESS) {
      return fmt::format("the field \"{}\" is not a string", options_.text_field);
    }
    return "";
  }

  std::string_view repair(std::string_view text, size_t offset) {
    int64_t replaced = 0;
    const std::string_view result = repair_utf8(text, repaired_, replaced);
    if (replaced > 0) count_broken(replaced, offset);
    return result;
  }

  void count_broken(int64_t count, size_t offset) {
    if (options_.fail_on_invalid_utf8) {
      throw Error(
          "{} holds broken UTF-8 at or after line {}; mend it, or let broken bytes be replaced by "
          "U+FFFD",
          file_.path.string(), line_number(map_.text(), static_cast<int64_t>(offset)));
    }
    statistics_.invalid_utf8 += count;
  }

  void emit(std::string_view text, bool ends_document) {
    do {
      const std::string_view piece = first_piece(text, kLongestPiece);
      text.remove_prefix(piece.size());
      sink_(piece, ends_document && text.empty());
    } while (!text.empty());
  }

  /// Repairing makes three bytes of one at worst, so this much of a file is at most one piece.
  static constexpr size_t kRawPiece = kLongestPiece / 3;

  const CorpusFile& file_;
  const Slice slice_;
  const ReadOptions& options_;
  ReadStatistics& statistics_;
  const PieceSink& sink_;
  MappedFile map_;
  std::string repaired_;
  simdjson::dom::parser parser_;
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
  SliceReader(corpus, slice, options, statistics, sink).read();
}

std::string describe_bad_line(const Corpus& corpus, const BadLine& line) {
  const fs::path& path = corpus.files[static_cast<size_t>(line.file)].path;
  const MappedFile map(path);
  return fmt::format("{}:{}: {}", path.string(), line_number(map.text(), line.offset), line.reason);
}

}  // namespace tessera
