#include "data/shards/work_item.h"

#include <array>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

constexpr int64_t kMagic = 0x314d455449534554;  // "TESITEM1" as bytes
using Header = std::array<int64_t, 8>;
static_assert(sizeof(Header) == kWorkItemHeaderBytes);

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

void WorkItemWriter::append(std::span<const int32_t> tokens) {
  tokens_ += static_cast<int64_t>(tokens.size());
  if (dtype_ == DType::u16) {
    narrow_.assign(tokens.begin(), tokens.end());
    file_.write_values(std::span<const uint16_t>(narrow_));
  } else {
    file_.write_values(tokens);
  }
}

void WorkItemWriter::commit(const ReadStatistics& statistics) {
  const std::string notes = notes_text(statistics.first_bad_lines);
  file_.write(notes);
  const Header header = {kMagic,
                         tokens_,
                         statistics.documents,
                         statistics.empty_documents,
                         statistics.bad_lines,
                         statistics.invalid_utf8,
                         0,
                         static_cast<int64_t>(notes.size())};
  file_.overwrite(0, std::as_bytes(std::span<const int64_t>(header)));
  file_.commit();
}

WorkItemSummary read_work_item(const fs::path& path, DType dtype) {
  const MappedFile file(path);
  const int64_t bytes = static_cast<int64_t>(file.bytes().size());
  const auto damaged = [&] {
    return Error("{} is damaged; delete it and run prepare again", path.string());
  };
  Header header{};
  if (bytes < kWorkItemHeaderBytes) throw damaged();
  std::memcpy(header.data(), file.bytes().data(), sizeof(header));
  const int64_t tokens = header[1];
  const int64_t notes_bytes = header[7];
  const bool plausible = header[0] == kMagic && tokens >= 0 && tokens <= bytes &&
                         notes_bytes >= 0 && notes_bytes <= bytes;
  if (!plausible || kWorkItemHeaderBytes + tokens * dtype_size(dtype) + notes_bytes != bytes) {
    throw damaged();
  }
  WorkItemSummary summary{tokens, {header[2], header[3], header[4], header[5], {}}};
  const std::string_view text = file.text().substr(static_cast<size_t>(bytes - notes_bytes));
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
