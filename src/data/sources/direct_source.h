#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/sources/instance_source.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// How a stream of tokens becomes instances.
struct DirectOptions {
  int64_t context = 0;
  /// The fraction of the instances that are held out: rounded up, and never all of them unless it
  /// is 1.
  double held_out = 0;
  uint64_t seed = 0;  // of the permutations
};

/// Instances straight out of token files. The stream is cut every `context` tokens, a shorter rest
/// is left out, and the instances are permuted by the seed; the held-out split is the last of that
/// order, as `prepare` does it with an equal stream and seed. The training split comes in that
/// order in the first epoch and permuted anew in each later one. No order is stored. `description`
/// is what errors call it. Throws Error when the stream is shorter than one instance.
std::unique_ptr<InstanceSource> make_direct_source(StoredTokens tokens,
                                                   const DirectOptions& options,
                                                   std::string description);

}  // namespace tessera
