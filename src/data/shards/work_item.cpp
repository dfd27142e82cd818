#include "data/shards/work_item.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"

namespace tessera {
namespace {

constexpr int64_t kWorkItemMagic = 0x324d455449534554;  // "TESITEM2" as bytes
constexpr int64_t kEarlierMagic = 0x314d455449534554;   // "TESITEM1"
constexpr int64_t kEarlierHeaderBytes = kWorkItemHeaderBytes - 8;
constexpr int64_t kHashBytes = sizeof(uint64_t);  // at the end of the file

/// The beginning of the file. It is written last.
struct WorkItemHeader {
  int64_t magic;
  int64_t tokens;
  int64_t documents;
  int64_t empty_documents;
  int64_t bad_lines;
  int64_t invalid_utf8;  // replacements
  int64_t begin;         // see WorkItemSummary
  int64_t end;
  int64_t notes_bytes;  // of the recorded bad lines
};
static_assert(sizeof(WorkItemHeader) == kWorkItemHeaderBytes);

/// Returns whether the hash at an item's end is that of the bytes before it.
bool has_stated_hash(const ReadFile& file) {
  constexpr int64_t piece_bytes = int64_t{1} << 20;
  const int64_t hash_begin = file.size() - kHashBytes;
  StreamHash hash;
  std::vector<std::byte> piece;
  const auto add = [&](int64_t begin, int64_t end) {
    piece.resize(static_cast<size_t>(end - begin));
    file.read_at(begin, piece);
    hash.update(piece);
  };
  for (int64_t begin = kWorkItemHeaderBytes; begin < hash_begin; begin += piece_bytes) {
    add(begin, std::min(begin + piece_bytes, hash_begin));
  }
  add(0, kWorkItemHeaderBytes);
  uint64_t stated = 0;
  file.read_at(hash_begin, std::as_writable_bytes(std::span(&stated, 1)));
  return stated == hash.value();
}

std::string notes_text(const std::vector<BadLine>& lines) {
  nlohmann::json notes = nlohmann::json::array();
  for (const BadLine& line : lines) notes.push_back({line.file, line.offset, line.reason});
  return notes.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

WorkItemWriter::WorkItemWriter(const fs::path& path, DType dtype) : dtype_(dtype), file_(path) {
  const WorkItemHeader empty{};
  file_.write(std::as_bytes(std::span(&empty, 1)));
}

void WorkItemWriter::write(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  file_.write(bytes);
}

void WorkItemWriter::append(std::span<const int32_t> tokens) {
  tokens_ += static_cast<int64_t>(tokens.size());
  if (dtype_ == DType::u16) {
    narrowed_.assign(tokens.begin(), tokens.end());
    write(std::as_bytes(std::span(narrowed_)));
  } else {
    write(std::as_bytes(tokens));
  }
}

void WorkItemWriter::commit(const ReadStatistics& statistics, int64_t begin, int64_t end) {
  const std::string notes = notes_text(statistics.first_bad_lines);
  write(std::as_bytes(std::span(notes)));
  const WorkItemHeader header = {.magic = kWorkItemMagic,
                                 .tokens = tokens_,
                                 .documents = statistics.documents,
                                 .empty_documents = statistics.empty_documents,
                                 .bad_lines = statistics.bad_lines,
                                 .invalid_utf8 = statistics.invalid_utf8,
                                 .begin = begin,
                                 .end = end,
                                 .notes_bytes = static_cast<int64_t>(notes.size())};
  const auto header_bytes = std::as_bytes(std::span(&header, 1));
  hash_.update(header_bytes);
  const uint64_t hash = hash_.value();
  file_.write(std::as_bytes(std::span(&hash, 1)));
  file_.overwrite(0, header_bytes);
  file_.commit();
}

std::optional<WorkItemSummary> read_work_item(const fs::path& path, DType dtype) {
  const ReadFile file(path);
  const int64_t bytes = file.size();
  const auto damaged = [&] {
    return Error("{} is damaged; delete it and run prepare again", path.string());
  };
  WorkItemHeader header{};
  if (bytes < kEarlierHeaderBytes) throw damaged();
  file.read_at(0, std::as_writable_bytes(std::span(&header, 1))
                      .first(static_cast<size_t>(std::min(bytes, kWorkItemHeaderBytes))));
  if (header.magic == kEarlierMagic) return std::nullopt;
  // The bounds of both counts come first. The sum of sizes below cannot overflow if they hold.
  const bool plausible = header.magic == kWorkItemMagic && header.tokens >= 0 &&
                         header.tokens <= bytes && header.notes_bytes >= 0 &&
                         header.notes_bytes <= bytes;
  if (!plausible) throw damaged();
  const int64_t notes_begin = kWorkItemHeaderBytes + header.tokens * dtype_size(dtype);
  if (notes_begin + header.notes_bytes + kHashBytes != bytes || !has_stated_hash(file)) {
    throw damaged();
  }
  WorkItemSummary summary{
      header.tokens,
      {header.documents, header.empty_documents, header.bad_lines, header.invalid_utf8, {}},
      header.begin,
      header.end};
  std::string text(static_cast<size_t>(header.notes_bytes), '\0');
  file.read_at(notes_begin, std::as_writable_bytes(std::span(text)));
  try {
    for (const auto& note : nlohmann::json::parse(text)) {
      summary.statistics.first_bad_lines.push_back({note.at(0), note.at(1), note.at(2)});
    }
  } catch (const nlohmann::json::exception&) {
    throw damaged();
  }
  return summary;
}

}  // namespace tessera
