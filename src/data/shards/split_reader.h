#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/lately_used.h"
#include "data/shards/manifest.h"
#include "data/shards/shard_file.h"

namespace tessera {

/// The instances of one split of a prepared folder, in the order of the shards, verified as they
/// are read. A context shorter than the prepared one, of which it must be a divisor, cuts each
/// prepared instance into several. Reading is const and may be done by many threads.
class SplitReader {
 public:
  /// Compares the size of each shard with the manifest; none is opened before it is read. `context`
  /// 0 means the prepared one. Throws Error when the folder is not complete, a shard is missing or
  /// of another size, the split is empty, or the context does not fit.
  SplitReader(const fs::path& folder, Split split, int64_t context = 0);

  const Manifest& manifest() const { return manifest_; }
  int64_t context() const { return context_; }
  int64_t instances() const { return instances_; }

  /// Reads one instance into `tokens` [context]. Throws Error naming the file, and the bytes or the
  /// row, when the shard is damaged or a token lies outside the vocabulary.
  void read(int64_t instance, std::span<int32_t> tokens) const;
  /// Asks the system to read this instance ahead of its use.
  void will_need(int64_t instance) const;
  /// Where a token of an instance stands, for errors: "web/train-00000.npy: token 17 of row 3".
  std::string place(int64_t instance, int64_t token) const;

 private:
  struct Position {
    size_t shard;
    int64_t instance;  // in the shard, in units of context()
  };

  Position find(int64_t instance) const;
  const Shard& shard(size_t number) const { return manifest_.split(split_).shards[number]; }
  int64_t instance_bytes() const { return context_ * dtype_size(manifest_.dtype); }

  fs::path folder_;
  Split split_;
  Manifest manifest_;
  int64_t context_ = 0;
  int64_t instances_ = 0;
  std::vector<int64_t> begins_;  // of each shard, the number of its first instance
  mutable LatelyUsed<ShardFile> open_;
};

}  // namespace tessera
