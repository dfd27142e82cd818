#include "data/shards/shard_file.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/npy.h"
#include "data/shards/block_hashes.h"

namespace tessera {
namespace {

int64_t block_count(int64_t bytes) { return (bytes + kHashBlockBytes - 1) / kHashBlockBytes; }

/// Returns the hashes of the blocks of a shard without a file of them, after a check of the whole
/// shard's hash.
std::vector<uint64_t> hashes_of_whole(const ReadFile& file, const Shard& shard) {
  FileHashes hashes = hash_file(file);
  if (const std::string found = hash_text(hashes.whole); found != shard.hash) {
    throw Error("{} is damaged: its hash is {}, {} says {}; {}", file.path().string(), found,
                kManifestName, shard.hash, kPrepareAgain);
  }
  return std::move(hashes.blocks);
}

}  // namespace

ShardFile::ShardFile(const fs::path& folder, const Manifest& manifest, const Shard& shard)
    : file_(folder / shard.file) {
  require_shard_bytes(file_.path(), file_.size(), shard);
  const fs::path table = folder / block_hashes_name(shard.file);
  hashes_ = shard.blocks_hash.empty() ? hashes_of_whole(file_, shard)
                                      : read_block_hashes(table, shard.blocks_hash);
  if (static_cast<int64_t>(hashes_.size()) != block_count(shard.bytes)) {
    throw Error("{} holds the hashes of {} blocks, but {} has {}; {}", table.string(),
                hashes_.size(), file_.path().string(), block_count(shard.bytes), kPrepareAgain);
  }
  check_header(manifest, shard);
}

void ShardFile::check_header(const Manifest& manifest, const Shard& shard) {
  const std::string name = file_.path().string();
  std::vector<std::byte> head(static_cast<size_t>(std::min(kMostNpyHeaderBytes, file_.size())));
  read_verified(0, head);
  const NpyHeader header = parse_npy_header(head, file_.size(), name);
  const auto refuse = [&](std::string_view what, const auto& found, const auto& expected) {
    throw Error("{}: its {} is {}, but the manifest says {}; it is damaged: {}", name, what, found,
                expected, kPrepareAgain);
  };
  if (header.dtype != manifest.dtype) {
    refuse("element type", npy_type_name(header.dtype), npy_type_name(manifest.dtype));
  }
  const std::vector<int64_t> shape = {shard.instances, manifest.recipe.context};
  if (header.shape != shape) {
    refuse("shape", fmt::format("[{}]", fmt::join(header.shape, ", ")),
           fmt::format("[{}]", fmt::join(shape, ", ")));
  }
  data_offset_ = header.data_offset;
}

void ShardFile::read(int64_t offset, std::span<std::byte> to) const {
  read_verified(data_offset_ + offset, to);
}

void ShardFile::read_verified(int64_t offset, std::span<std::byte> to) const {
  const std::lock_guard lock(mutex_);
  while (!to.empty()) {
    load_block(offset / kHashBlockBytes);
    const auto rest = std::span<const std::byte>(block_bytes_)
                          .subspan(static_cast<size_t>(offset % kHashBlockBytes));
    const size_t bytes = std::min(rest.size(), to.size());
    std::memcpy(to.data(), rest.data(), bytes);
    to = to.subspan(bytes);
    offset += static_cast<int64_t>(bytes);
  }
}

void ShardFile::load_block(int64_t block) const {
  if (block == block_) return;
  block_ = -1;
  const int64_t begin = block * kHashBlockBytes;
  const int64_t end = std::min(begin + kHashBlockBytes, file_.size());
  block_bytes_.resize(static_cast<size_t>(end - begin));
  file_.read_at(begin, block_bytes_);
  const uint64_t expected = hashes_[static_cast<size_t>(block)];
  if (const uint64_t found = hash(std::span<const std::byte>(block_bytes_)); found != expected) {
    throw Error("{} is damaged in bytes {} to {}: their hash is {}, expected {}; {}",
                file_.path().string(), begin, end - 1, hash_text(found), hash_text(expected),
                kPrepareAgain);
  }
  block_ = block;
}

void ShardFile::will_need(int64_t offset, int64_t length) const {
  const int64_t first = (data_offset_ + offset) / kHashBlockBytes;
  const int64_t last = (data_offset_ + offset + length - 1) / kHashBlockBytes;
  {
    const std::lock_guard lock(mutex_);
    if (last == asked_for_) return;
    asked_for_ = last;
  }
  file_.will_need(first * kHashBlockBytes, (last - first + 1) * kHashBlockBytes);
}

}  // namespace tessera
