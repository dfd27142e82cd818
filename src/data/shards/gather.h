#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "data/shards/manifest.h"
#include "data/shards/work_item.h"

namespace tessera {

/// The token stream of the whole corpus: the work items' tokens one after another.
struct TokenStream {
  std::vector<fs::path> items;
  std::vector<int64_t> begins;  // the stream index of each item's first token, and the stream's end
  DType dtype = DType::u16;

  int64_t tokens() const { return begins.back(); }
};

/// The division of the corpus's instances into splits and shards. Instance i of the permuted order
/// is the `context` tokens of the stream from index context * permutation(i) on. The training split
/// is the beginning of that order, and the held-out split is its end.
struct SplitPlan {
  int64_t context = 0;
  int64_t instances = 0;
  int64_t held_out = 0;         // see count_held_out()
  int64_t shard_instances = 0;  // instances per shard; the last of a split may have fewer

  int64_t begin(Split split) const { return split == Split::train ? 0 : instances - held_out; }
  int64_t end(Split split) const {
    return split == Split::train ? instances - held_out : instances;
  }
};

/// Returns how many of `instances` (at least 1) are held out: ceil(fraction * instances), but at
/// least 1 if `fraction` is above 0, and never all. A single instance is not held out.
int64_t count_held_out(int64_t instances, double fraction);

/// Returns the plan for a stream of `tokens` tokens. Shards have at most `shard_tokens` tokens, but
/// at least one instance.
SplitPlan plan_splits(int64_t tokens, int64_t context, double held_out_fraction,
                      int64_t shard_tokens);

/// The result of gather_shards().
struct GatherResult {
  SplitSummary train;
  SplitSummary held_out;
  int64_t shards_reused = 0;
  std::vector<std::string> shards_remade;  // files that existed but were damaged
};

/// Writes the shards of both splits into `folder` (Optimus §4, shuffling and sharding). Each shard
/// is gathered in memory from the stream and written atomically, then the file with the hashes of
/// its blocks. A shard that already exists is kept if it has these hashes, otherwise it is written
/// again. Memory: one shard. Calls `tick` on the calling thread with the number of instances done.
/// Throws Error when a file cannot be read or written, and when it is interrupted.
GatherResult gather_shards(const TokenStream& stream, const SplitPlan& plan,
                           const Permutation& permutation, int32_t end_of_document,
                           const fs::path& folder, int threads,
                           const std::function<void(int64_t instances)>& tick);

}  // namespace tessera
