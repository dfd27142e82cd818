#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/read_file.h"

namespace tessera {

/// The size of the blocks in which a shard's bytes are hashed; the last block may be shorter. With
/// hashes of blocks, a part of a shard can be verified without reading all of it.
inline constexpr int64_t kHashBlockBytes = int64_t{64} << 10;

/// XXH3-64 hashes of a file: of the whole file and of each of its blocks.
struct FileHashes {
  uint64_t whole = 0;
  std::vector<uint64_t> blocks;
  bool operator==(const FileHashes&) const = default;
};

/// Computes the hashes of a file whose bytes arrive in pieces.
class FileHasher {
 public:
  void update(std::span<const std::byte> bytes);
  FileHashes finish();

 private:
  StreamHash whole_;
  std::vector<uint64_t> blocks_;
  std::vector<std::byte> partial_block_;  // the last block, while it is not complete
};

/// Returns the hashes of a whole file. Reads a megabyte at a time.
FileHashes hash_file(const ReadFile& file);

/// Returns the name of the file with the hashes of a shard's blocks: train-00000.xxh3 for
/// train-00000.npy. The file holds the hashes one after another as 64-bit little-endian integers.
std::string block_hashes_name(const std::string& shard_file);

/// Returns the content of the file with the hashes of a shard's blocks.
std::string block_hashes_text(const FileHashes& hashes);

/// Reads the file with the hashes of a shard's blocks. Throws Error naming it when its hash is not
/// `expected` (hexadecimal).
std::vector<uint64_t> read_block_hashes(const fs::path& path, const std::string& expected);

}  // namespace tessera
