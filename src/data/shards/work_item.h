#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "data/corpus/documents.h"
#include "tensor/dtype.h"

namespace tessera {

/// The tokens of one work item, a file of DIR/work. It appears whole or not at all, so that its
/// presence says that the item is done. Layout, little-endian: a header of eight 64-bit integers
/// (magic, token count, documents, empty documents, bad lines,
/// replacements, 0, bytes of notes), the tokens in the shards'
/// element type, and the remembered bad lines as JSON.
class WorkItemWriter {
 public:
  WorkItemWriter(const fs::path& path, DType dtype);
  void append(std::span<const int32_t> tokens);
  int64_t tokens() const { return tokens_; }
  void commit(const ReadStatistics& statistics);

 private:
  DType dtype_;
  int64_t tokens_ = 0;
  std::vector<uint16_t> narrow_;
  AtomicFile file_;
};

struct WorkItemSummary {
  int64_t tokens = 0;
  ReadStatistics statistics;
};

/// Bytes before the first token.
inline constexpr int64_t kWorkItemHeaderBytes = 64;

/// Reads the counts of a finished item. Throws Error when the file is damaged.
WorkItemSummary read_work_item(const fs::path& path, DType dtype);

}  // namespace tessera
