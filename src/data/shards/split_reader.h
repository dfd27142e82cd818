#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/lru_cache.h"
#include "data/shards/manifest.h"
#include "data/sources/instance_source.h"

namespace tessera {

/// A reader of the instances of one split of a prepared folder, in the order of the shards. The
/// data is verified as it is read. If the context is shorter than the prepared one, each prepared
/// instance is cut into several; the context must then divide the prepared one. Reading is const
/// and may be done by many threads.
class SplitReader {
 public:
  /// Compares the size of each shard with the manifest. A shard is opened when it is first read.
  /// `context` 0 means the prepared context. Throws Error when the folder is not complete, a shard
  /// is missing or has a different size, the split is empty, or the context does not fit.
  SplitReader(const fs::path& folder, Split split, int64_t context = 0);

  const Manifest& manifest() const { return manifest_; }
  int64_t context() const { return context_; }
  int64_t instances() const { return instances_; }

  /// Reads one instance into `tokens` [context]. Throws Error when the shard is damaged, naming the
  /// file and the bytes, and when a token is outside the vocabulary, naming the file and the row.
  void read(int64_t instance, std::span<int32_t> tokens) const;
  /// Asks the system to read this instance ahead, if its shard is open.
  void will_need(int64_t instance) const;
  /// Returns the file, the row and the index in the row of an instance's token, for errors:
  /// "web/train-00000.npy: token 17 of row 3".
  std::string location(int64_t instance, int64_t token) const;

 private:
  class ShardFile;
  struct Position {
    size_t shard;
    int64_t instance;  // its index in the shard, in instances of context() tokens
  };

  Position position_of(int64_t instance) const;
  const Shard& shard(size_t index) const { return manifest_.split(split_).shards[index]; }
  int64_t instance_bytes() const { return context_ * dtype_size(manifest_.dtype); }

  fs::path folder_;
  Split split_;
  Manifest manifest_;
  int64_t context_ = 0;
  int64_t instances_ = 0;
  std::vector<int64_t> first_instances_;       // of each shard, as an index in the split
  mutable LruCache<ShardFile> opened_shards_;  // by the shard's index
};

/// Opens a prepared folder as a source of instances. Every epoch has the order of the shards, which
/// `prepare` permuted. Throws Error as SplitReader does, but the held-out split may be empty.
std::unique_ptr<InstanceSource> open_prepared_source(const fs::path& folder, int64_t context);

}  // namespace tessera
