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

/// A writer of the tokens of one work item to a file in work/ (see OutputFolder). The file appears
/// whole or not at all, so if it exists, the item is done. Layout, little-endian: a header of nine
/// 64-bit integers (see work_item.cpp), the tokens in the shards' element type, the recorded bad
/// lines as JSON, and an XXH3-64 hash of everything after the header, then the header.
class WorkItemWriter {
 public:
  WorkItemWriter(const fs::path& path, DType dtype);
  void append(std::span<const int32_t> tokens);
  int64_t tokens() const { return tokens_; }
  /// Completes the file and lets it appear. For `begin` and `end`, see WorkItemSummary.
  void commit(const ReadStatistics& statistics, int64_t begin, int64_t end);

 private:
  void write(std::span<const std::byte> bytes);

  DType dtype_;
  int64_t tokens_ = 0;
  std::vector<uint16_t> narrowed_;
  StreamHash hash_;
  AtomicFile file_;
};

/// The counts of a finished item, and the range of text that its tokens cover.
struct WorkItemSummary {
  static constexpr int64_t kUnknown = -1;

  int64_t tokens = 0;
  ReadStatistics statistics;
  /// The byte offsets at which the item's tokens begin and end, in the files of its first and last
  /// slice. If a plain-text file is cut there, `begin` is the end of the item before it and is a
  /// boundary of the encoding. A slice without a boundary has no tokens and unknown ends.
  int64_t begin = kUnknown;
  int64_t end = kUnknown;
};

/// The bytes before the first token.
inline constexpr int64_t kWorkItemHeaderBytes = 72;

/// Returns the counts of a finished item. Reads the whole file to compare its hash. Returns nothing
/// for an item of an earlier version, which cut documents at other offsets. Throws Error when the
/// file is damaged.
std::optional<WorkItemSummary> read_work_item(const fs::path& path, DType dtype);

}  // namespace tessera
