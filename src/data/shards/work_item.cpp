#include "data/shards/work_item.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"

namespace tessera {
namespace {

constexpr int64_t kWorkItemMagic = 0x324d455449534554;  // "TESITEM2" as bytes
constexpr int64_t kEarlierMagic = 0x314d455449534554;   // "TESITEM1"
using Header = std::array<int64_t, 9>;
static_assert(sizeof(Header) == kWorkItemHeaderBytes);
constexpr int64_t kHashBytes = sizeof(uint64_t);  // at the end of the file

/// Returns whether the hash at an item's end is the hash of the rest.
bool has_its_hash(const ReadFile& file) {
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
  const Header empty{};
  file_.write_values(std::span<const int64_t>(empty));
}

void WorkItemWriter::write(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  file_.write(bytes);
}

void WorkItemWriter::append(std::span<const int32_t> tokens) {
  tokens_ += static_cast<int64_t>(tokens.size());
  if (dtype_ == DType::u16) {
    narrow_.assign(tokens.begin(), tokens.end());
    write(std::as_bytes(std::span(narrow_)));
  } else {
    write(std::as_bytes(tokens));
  }
}

void WorkItemWriter::commit(const ReadStatistics& statistics, int64_t from, int64_t to) {
  const std::string notes = notes_text(statistics.first_bad_lines);
  write(std::as_bytes(std::span(notes)));
  const Header header = {kWorkItemMagic,
                         tokens_,
                         statistics.documents,
                         statistics.empty_documents,
                         statistics.bad_lines,
                         statistics.invalid_utf8,
                         from,
                         to,
                         static_cast<int64_t>(notes.size())};
  const auto header_bytes = std::as_bytes(std::span<const int64_t>(header));
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
  Header header{};
  if (bytes < kWorkItemHeaderBytes - 8) throw damaged();  // the earlier version's header
  file.read_at(0, std::as_writable_bytes(std::span(header))
                      .first(static_cast<size_t>(std::min(bytes, kWorkItemHeaderBytes))));
  if (header[0] == kEarlierMagic) return std::nullopt;
  const int64_t tokens = header[1];
  const int64_t notes_bytes = header[8];
  const bool plausible = header[0] == kWorkItemMagic && tokens >= 0 && tokens <= bytes &&
                         notes_bytes >= 0 && notes_bytes <= bytes;
  if (!plausible) throw damaged();
  const int64_t notes_begin = kWorkItemHeaderBytes + tokens * dtype_size(dtype);
  if (notes_begin + notes_bytes + kHashBytes != bytes || !has_its_hash(file)) {
    throw damaged();
  }
  WorkItemSummary summary{
      tokens, {header[2], header[3], header[4], header[5], {}}, header[6], header[7]};
  std::string text(static_cast<size_t>(notes_bytes), '\0');
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
