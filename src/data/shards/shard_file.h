#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/read_file.h"
#include "data/shards/manifest.h"

namespace tessera {

/// The data of one shard, verified as it is read: every byte that is handed out is of a block whose
/// hash was compared after that very reading. One block is kept, so that rows that are read one
/// after another have each block read and hashed once. Many threads may read.
///
/// A folder of format version 1 has no hashes of blocks; there the whole shard is read and compared
/// with its one hash when it is opened, which yields them.
class ShardFile {
 public:
  /// Throws Error naming the file when the shard, or the file of its blocks' hashes, is missing or
  /// damaged, and when it is not the array that the manifest says.
  ShardFile(const fs::path& folder, const Manifest& manifest, const Shard& shard);

  /// Reads bytes of the data, counted from its start, behind the header. Throws Error naming the
  /// file and the bytes that are damaged.
  void read(int64_t offset, std::span<std::byte> to) const;
  /// Asks the system to read these bytes ahead of their use.
  void will_need(int64_t offset, int64_t length) const;

 private:
  void check_header(const Manifest& manifest, const Shard& shard);
  void read_verified(int64_t offset, std::span<std::byte> to) const;
  void load_block(int64_t block) const;

  ReadFile file_;
  std::vector<uint64_t> hashes_;  // of the blocks
  int64_t data_offset_ = 0;

  mutable std::mutex mutex_;
  mutable int64_t block_ = -1;  // the one in block_bytes_; -1: none
  mutable std::vector<std::byte> block_bytes_;
  mutable int64_t asked_for_ = -1;  // the last block that the system was asked to read ahead
};

}  // namespace tessera
