#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "data/npy.h"
#include "data/shards/manifest.h"

namespace tessera {

/// The instances of one split of a prepared folder, memory-mapped, in the order of the shards. A
/// context shorter than the prepared one, of which it must be a divisor, cuts each prepared
/// instance into several. Reading is const and may be done by many threads.
class SplitReader {
 public:
  /// Maps the shards and checks each against the manifest: size, element type, shape. `context` 0
  /// means the prepared one. Throws Error when the folder is not complete, a shard is missing or
  /// not what the manifest says, the split is empty, or the context does not fit.
  SplitReader(const fs::path& folder, Split split, int64_t context = 0);

  const Manifest& manifest() const { return manifest_; }
  int64_t context() const { return context_; }
  int64_t instances() const { return instances_; }

  /// Reads one instance into `tokens` [context]. Throws Error naming the file and the row when a
  /// token lies outside the vocabulary.
  void read(int64_t instance, std::span<int32_t> tokens) const;
  /// Asks the system to read these instances ahead of their use.
  void will_need(int64_t first_instance, int64_t count) const;

 private:
  struct MappedShard {
    MappedFile file;
    int64_t data_offset = 0;
    int64_t first_instance = 0;  // of the split, in units of context()
    int64_t instances = 0;
  };

  void add_shard(const fs::path& path, const Shard& shard);
  const MappedShard& shard_of(int64_t instance) const;

  Manifest manifest_;
  int64_t context_ = 0;
  int64_t instances_ = 0;
  std::vector<MappedShard> shards_;
};

}  // namespace tessera
