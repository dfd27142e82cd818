#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "data/corpus/documents.h"
#include "tensor/dtype.h"

namespace tessera {

/// The tokens of one work item, a file of DIR/work. It appears whole or not at all, so that its
/// presence says that the item is done. Layout, little-endian: a header of nine 64-bit integers
/// (magic, token count, documents, empty documents, bad lines, replacements, `from` and `to` of
/// WorkItemSummary, bytes of notes), the tokens in the shards' element type, the remembered bad
/// lines as JSON, and the hash of all that: XXH3-64 of what stands behind the header and then of
/// the header.
class WorkItemWriter {
 public:
  WorkItemWriter(const fs::path& path, DType dtype);
  void append(std::span<const int32_t> tokens);
  int64_t tokens() const { return tokens_; }
  /// `from` and `to`: see WorkItemSummary.
  void commit(const ReadStatistics& statistics, int64_t from, int64_t to);

 private:
  void write(std::span<const std::byte> bytes);

  DType dtype_;
  int64_t tokens_ = 0;
  std::vector<uint16_t> narrow_;
  StreamHash hash_;
  AtomicFile file_;
};

struct WorkItemSummary {
  static constexpr int64_t kUnknown = -1;

  int64_t tokens = 0;
  ReadStatistics statistics;
  /// The bytes of its first and last slice's files at which its tokens begin and end. Where a file
  /// of plain text is cut, the one is where the item before ends: a boundary of the encoding. An
  /// item that found none knows neither and has no tokens.
  int64_t from = kUnknown;
  int64_t to = kUnknown;
};

/// Bytes before the first token.
inline constexpr int64_t kWorkItemHeaderBytes = 72;

/// Reads the counts of a finished item, and all of it to compare its hash; nothing when it is of an
/// earlier version, whose documents were cut elsewhere. Throws Error when the file is damaged.
std::optional<WorkItemSummary> read_work_item(const fs::path& path, DType dtype);

}  // namespace tessera
