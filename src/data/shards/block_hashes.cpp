#include "data/shards/block_hashes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "data/shards/manifest.h"

namespace tessera {

void FileHasher::update(std::span<const std::byte> bytes) {
  constexpr size_t block_bytes = kHashBlockBytes;
  whole_.update(bytes);
  while (!bytes.empty()) {
    if (partial_block_.empty() && bytes.size() >= block_bytes) {
      blocks_.push_back(hash(bytes.first(block_bytes)));
      bytes = bytes.subspan(block_bytes);
      continue;
    }
    const size_t added = std::min(block_bytes - partial_block_.size(), bytes.size());
    partial_block_.insert(partial_block_.end(), bytes.begin(),
                          bytes.begin() + static_cast<std::ptrdiff_t>(added));
    bytes = bytes.subspan(added);
    if (partial_block_.size() < block_bytes) continue;
    blocks_.push_back(hash(std::span<const std::byte>(partial_block_)));
    partial_block_.clear();
  }
}

FileHashes FileHasher::finish() {
  if (!partial_block_.empty()) blocks_.push_back(hash(std::span<const std::byte>(partial_block_)));
  return {whole_.value(), std::move(blocks_)};
}

FileHashes hash_file(const ReadFile& file) {
  FileHasher hasher;
  std::vector<std::byte> buffer;
  for (int64_t begin = 0; begin < file.size();) {
    const int64_t bytes = std::min(16 * kHashBlockBytes, file.size() - begin);
    buffer.resize(static_cast<size_t>(bytes));
    file.read_at(begin, buffer);
    hasher.update(buffer);
    begin += bytes;
  }
  return hasher.finish();
}

std::string block_hashes_name(const std::string& shard_file) {
  return fs::path(shard_file).replace_extension(".xxh3").string();
}

std::string block_hashes_text(const FileHashes& hashes) {
  const auto bytes = std::as_bytes(std::span(hashes.blocks));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<uint64_t> read_block_hashes(const fs::path& path, const std::string& expected) {
  const std::string text = read_file(path);
  if (const std::string found = hash_text(hash(text)); found != expected) {
    throw Error("{} is damaged: its hash is {}, {} says {}; {}", path.string(), found,
                kManifestName, expected, kPrepareAgain);
  }
  std::vector<uint64_t> blocks(text.size() / sizeof(uint64_t));
  std::memcpy(blocks.data(), text.data(), blocks.size() * sizeof(uint64_t));
  return blocks;
}

}  // namespace tessera
