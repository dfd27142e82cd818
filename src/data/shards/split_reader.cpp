#include "data/shards/split_reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/read_file.h"
#include "data/npy.h"
#include "data/shards/block_hashes.h"

// An instance comes from disk in three steps, from the last class of this file to the first:
//
//   1. PreparedSource, the InstanceSource of a prepared folder, has a SplitReader for each split.
//   2. SplitReader::read() finds the shard of the instance and opens it, unless it is one of the
//      few that were used last. It reads the instance's bytes, widens each id to 32 bits and
//      compares it with the size of the vocabulary.
//   3. ShardFile::read() reads whole blocks of 64 KiB with a system call and compares each with its
//      hash before it copies any of their bytes.
//
// A shard is a .npy file: a header with the type and the shape [instances, context], then the ids,
// uint16 or int32. The hashes of its blocks are in a file beside it.

namespace tessera {
namespace {

// Threads read the shards in order and nearly together, so few shards are in use at once.
constexpr size_t kOpenedShards = 4;

int64_t block_count(int64_t bytes) { return (bytes + kHashBlockBytes - 1) / kHashBlockBytes; }

/// Computes the hashes of the blocks of a shard that has no file with them. Throws Error if the
/// whole shard does not have its hash.
std::vector<uint64_t> computed_block_hashes(const ReadFile& file, const Shard& shard) {
  FileHashes hashes = hash_file(file);
  if (const std::string found = hash_text(hashes.whole); found != shard.hash) {
    throw Error("{} is damaged: its hash is {}, {} says {}; {}", file.path().string(), found,
                kManifestName, shard.hash, kPrepareAgain);
  }
  return std::move(hashes.blocks);
}

}  // namespace

/// A reader of one shard that verifies the data. A block's hash is compared each time the block is
/// read, before any of its bytes are handed out. One block is kept in memory, so reading rows in
/// order reads and hashes each block once. Many threads may read.
///
/// A folder of format version 1 has no hashes of blocks. The whole shard is then read and compared
/// with its one hash when it is opened; this also computes the hashes of its blocks.
class SplitReader::ShardFile {
 public:
  /// Throws Error naming the file when the shard, or the file with its blocks' hashes, is missing
  /// or damaged, and when the shard is not the array that the manifest describes.
  ShardFile(const fs::path& folder, const Manifest& manifest, const Shard& shard)
      : file_(folder / shard.file) {
    require_shard_bytes(file_.path(), file_.size(), shard);
    const fs::path hashes_path = folder / block_hashes_name(shard.file);
    block_hashes_ = shard.blocks_hash.empty() ? computed_block_hashes(file_, shard)
                                              : read_block_hashes(hashes_path, shard.blocks_hash);
    if (static_cast<int64_t>(block_hashes_.size()) != block_count(shard.bytes)) {
      throw Error("{} holds the hashes of {} blocks, but {} has {}; {}", hashes_path.string(),
                  block_hashes_.size(), file_.path().string(), block_count(shard.bytes),
                  kPrepareAgain);
    }
    check_header(manifest, shard);
  }

  /// Reads bytes of the data. `offset` counts from the end of the header. Throws Error naming the
  /// file and the damaged bytes.
  void read(int64_t offset, std::span<std::byte> target) const {
    read_verified(data_offset_ + offset, target);
  }

  /// Asks the system to read the blocks that hold these bytes of the data ahead.
  void will_need(int64_t offset, int64_t length) const {
    const int64_t first = (data_offset_ + offset) / kHashBlockBytes;
    const int64_t last = (data_offset_ + offset + length - 1) / kHashBlockBytes;
    {
      const std::lock_guard lock(mutex_);
      if (last == last_requested_block_) return;  // neighbouring instances share blocks
      last_requested_block_ = last;
    }
    file_.will_need(first * kHashBlockBytes, (last - first + 1) * kHashBlockBytes);
  }

 private:
  void check_header(const Manifest& manifest, const Shard& shard) {
    const std::string name = file_.path().string();
    std::vector<std::byte> head(static_cast<size_t>(std::min(kMaxNpyHeaderBytes, file_.size())));
    read_verified(0, head);
    const NpyHeader header = parse_npy_header(head, file_.size(), name);
    const auto refuse = [&](std::string_view property, const auto& found, const auto& expected) {
      throw Error("{}: its {} is {}, but the manifest says {}; it is damaged: {}", name, property,
                  found, expected, kPrepareAgain);
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

  /// Reads the bytes of the file from `offset` on. The lock is held throughout, because all threads
  /// share the one block in memory.
  void read_verified(int64_t offset, std::span<std::byte> target) const {
    const std::lock_guard lock(mutex_);
    while (!target.empty()) {
      load_block(offset / kHashBlockBytes);
      const auto available = std::span<const std::byte>(block_bytes_)
                                 .subspan(static_cast<size_t>(offset % kHashBlockBytes));
      const size_t bytes = std::min(available.size(), target.size());
      std::memcpy(target.data(), available.data(), bytes);
      target = target.subspan(bytes);
      offset += static_cast<int64_t>(bytes);
    }
  }

  void load_block(int64_t block) const {
    if (block == block_index_) return;
    block_index_ = -1;  // an error below must not leave the bytes of a damaged block in use
    const int64_t begin = block * kHashBlockBytes;
    const int64_t end = std::min(begin + kHashBlockBytes, file_.size());
    block_bytes_.resize(static_cast<size_t>(end - begin));
    file_.read_at(begin, block_bytes_);
    const uint64_t expected = block_hashes_[static_cast<size_t>(block)];
    if (const uint64_t found = hash(std::span<const std::byte>(block_bytes_)); found != expected) {
      throw Error("{} is damaged in bytes {} to {}: their hash is {}, expected {}; {}",
                  file_.path().string(), begin, end - 1, hash_text(found), hash_text(expected),
                  kPrepareAgain);
    }
    block_index_ = block;
  }

  ReadFile file_;
  std::vector<uint64_t> block_hashes_;
  int64_t data_offset_ = 0;  // the bytes of the header

  mutable std::mutex mutex_;          // guards the members below
  mutable int64_t block_index_ = -1;  // the index of the block in block_bytes_; -1: none
  mutable std::vector<std::byte> block_bytes_;
  mutable int64_t last_requested_block_ = -1;  // by will_need()
};

SplitReader::SplitReader(const fs::path& folder, Split split, int64_t context)
    : folder_(folder),
      split_(split),
      manifest_(read_manifest(folder)),
      opened_shards_(kOpenedShards) {
  const int64_t prepared = manifest_.recipe.context;
  context_ = context == 0 ? prepared : context;
  if (context_ < 2 || context_ > prepared || prepared % context_ != 0) {
    throw Error(
        "the context of {} does not fit the data in {}, which was prepared with {}; expected {} or "
        "a divisor of it that is at least 2, or data prepared with --context {}",
        context_, folder.string(), prepared, prepared, context_);
  }
  const SplitSummary& summary = manifest_.split(split);
  if (summary.shards.empty()) {
    throw Error("{} has no {} data; {}", folder.string(), split_name(split),
                empty_split_advice(split));
  }
  for (const Shard& shard : summary.shards) {
    const fs::path path = folder / shard.file;
    std::error_code code;
    const auto bytes = fs::file_size(path, code);
    if (code) throw Error("cannot read {}: {}; {}", path.string(), code.message(), kPrepareAgain);
    require_shard_bytes(path, static_cast<int64_t>(bytes), shard);
    first_instances_.push_back(instances_);
    instances_ += shard.instances * (prepared / context_);
  }
}

SplitReader::Position SplitReader::position_of(int64_t instance) const {
  TESSERA_CHECK(instance >= 0 && instance < instances_, "instance {} of {}", instance, instances_);
  const auto first = std::prev(std::ranges::upper_bound(first_instances_, instance));
  return {static_cast<size_t>(first - first_instances_.begin()), instance - *first};
}

std::string SplitReader::location(int64_t instance, int64_t token) const {
  const Position position = position_of(instance);
  const int64_t index = position.instance * context_ + token;  // of the token in the shard
  return fmt::format("{}: token {} of row {}", (folder_ / shard(position.shard).file).string(),
                     index % manifest_.recipe.context, index / manifest_.recipe.context);
}

void SplitReader::read(int64_t instance, std::span<int32_t> tokens) const {
  TESSERA_CHECK(static_cast<int64_t>(tokens.size()) == context_, "{} tokens for an instance of {}",
                tokens.size(), context_);
  const Position position = position_of(instance);
  const auto file = opened_shards_.get(position.shard, [&] {
    return std::make_shared<const ShardFile>(folder_, manifest_, shard(position.shard));
  });
  std::vector<std::byte> bytes(static_cast<size_t>(instance_bytes()));
  file->read(position.instance * instance_bytes(), bytes);
  const auto widen = [&]<typename T>(T id) {  // the argument only selects T
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(&id, bytes.data() + i * sizeof(T), sizeof(T));
      tokens[i] = static_cast<int32_t>(id);
    }
  };
  if (manifest_.dtype == DType::u16) {
    widen(uint16_t{});
  } else {
    widen(int32_t{});
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < manifest_.vocabulary_size) continue;
    throw Error("{} is {}, outside the vocabulary of {}; the file is damaged: {}",
                location(instance, static_cast<int64_t>(i)), tokens[i], manifest_.vocabulary_size,
                kPrepareAgain);
  }
}

void SplitReader::will_need(int64_t instance) const {
  const Position position = position_of(instance);
  // A shard that is not open yet is opened by the first read(), which reports damage.
  if (const auto file = opened_shards_.find(position.shard)) {
    file->will_need(position.instance * instance_bytes(), instance_bytes());
  }
}

namespace {

/// The source of a prepared folder. All epochs have the same order.
class PreparedSource : public InstanceSource {
 public:
  PreparedSource(const fs::path& folder, int64_t context)
      : folder_(folder), train_(folder, Split::train, context) {
    if (train_.manifest().held_out.instances > 0) {
      held_out_.emplace(folder, Split::held_out, train_.context());
    }
  }

  int64_t context() const override { return train_.context(); }
  int64_t instances(Split split) const override {
    if (split == Split::train) return train_.instances();
    return held_out_ ? held_out_->instances() : 0;
  }

  void read(Split split, int64_t /*epoch*/, int64_t instance,
            std::span<int32_t> tokens) const override {
    reader(split).read(instance, tokens);
  }

  void will_need(Split split, int64_t /*epoch*/, int64_t instance) const override {
    reader(split).will_need(instance);
  }

  std::string location(Split split, int64_t /*epoch*/, int64_t instance,
                       int64_t token) const override {
    return reader(split).location(instance, token);
  }

  std::string fingerprint() const override {
    std::string text = train_.manifest().tokenizer_fingerprint;
    for (const Shard& shard : train_.manifest().train.shards) text += shard.hash;
    return hash_text(hash(text));
  }

  std::string description() const override { return folder_.string(); }

 private:
  const SplitReader& reader(Split split) const {
    TESSERA_CHECK(split == Split::train || held_out_, "{} has no held-out data", folder_.string());
    return split == Split::train ? train_ : *held_out_;
  }

  fs::path folder_;
  SplitReader train_;
  std::optional<SplitReader> held_out_;  // none if the split is empty
};

}  // namespace

std::unique_ptr<InstanceSource> open_prepared_source(const fs::path& folder, int64_t context) {
  return std::make_unique<PreparedSource>(folder, context);
}

}  // namespace tessera
