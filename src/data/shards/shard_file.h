#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/read_file.h"
#include "data/shards/manifest.h"

namespace tessera {

/// A reader of one shard that verifies the data. A block's hash is compared each time the block is
/// read, before any of its bytes are handed out. One block is kept in memory, so reading rows in
/// order reads and hashes each block once. Many threads may read.
///
/// A folder of format version 1 has no hashes of blocks. The whole shard is then read and compared
/// with its one hash when it is opened; this also computes the hashes of its blocks.
class ShardFile {
 public:
  /// Throws Error naming the file when the shard, or the file with its blocks' hashes, is missing
  /// or damaged, and when the shard is not the array that the manifest describes.
  ShardFile(const fs::path& folder, const Manifest& manifest, const Shard& shard);

  /// Reads bytes of the data. `offset` counts from the end of the header. Throws Error naming the
  /// file and the damaged bytes.
  void read(int64_t offset, std::span<std::byte> to) const;
  /// Asks the system to read these bytes ahead.
  void will_need(int64_t offset, int64_t length) const;

 private:
  void check_header(const Manifest& manifest, const Shard& shard);
  void read_verified(int64_t offset, std::span<std::byte> to) const;
  void load_block(int64_t block) const;

  ReadFile file_;
  std::vector<uint64_t> hashes_;  // the hashes of the blocks
  int64_t data_offset_ = 0;

  mutable std::mutex mutex_;
  mutable int64_t block_ = -1;  // the block in block_bytes_; -1: none
  mutable std::vector<std::byte> block_bytes_;
  mutable int64_t asked_for_ = -1;  // the last block that the system was asked to read ahead
};

}  // namespace tessera
