#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/read_file.h"

namespace tessera {

/// A shard's bytes are hashed in blocks of so many, the last one shorter, so that what is read of
/// it can be verified without reading all of it.
inline constexpr int64_t kHashBlockBytes = int64_t{64} << 10;

/// XXH3-64 of a file: of all its bytes, and of each of its blocks.
struct FileHashes {
  uint64_t whole = 0;
  std::vector<uint64_t> blocks;

  bool operator==(const FileHashes&) const = default;
};

/// Takes the hashes of bytes that arrive in pieces.
class FileHasher {
 public:
  void update(std::span<const std::byte> bytes);
  FileHashes finish();

 private:
  StreamHash whole_;
  std::vector<uint64_t> blocks_;
  std::vector<std::byte> begun_;  // the start of a block
};

/// Reads a whole file, a few megabytes at a time.
FileHashes hash_file(const ReadFile& file);

/// The file that holds the hashes of a shard's blocks, one after another as 64-bit little-endian
/// integers: train-00000.xxh3 of train-00000.npy.
std::string block_hashes_name(const std::string& shard_file);

/// The bytes of such a file.
std::string block_hashes_text(const FileHashes& hashes);

/// Reads such a file. Throws Error naming it when its own hash is not `expected` (hexadecimal).
std::vector<uint64_t> read_block_hashes(const fs::path& path, const std::string& expected);

}  // namespace tessera
