#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/sources/instance_source.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// The division of a stream of tokens into instances.
struct DirectOptions {
  int64_t context = 0;
  /// The fraction of the instances to hold out (see count_held_out()). 1 holds out all of them.
  double held_out = 0;
  uint64_t seed = 0;  // the seed of the permutations
};

/// Makes a source of instances directly from token files. The stream is cut every `context` tokens.
/// Tokens at its end that are too few for an instance are left out. The instances are permuted by
/// the seed, and the held-out split is the end of that order. `prepare` gives the same order for an
/// equal stream and seed. The training split has it in the first epoch and a new permutation in
/// each later one. No order is stored. `description` names the source in errors. Throws Error when
/// the stream is shorter than one instance.
std::unique_ptr<InstanceSource> make_direct_source(StoredTokens tokens,
                                                   const DirectOptions& options,
                                                   std::string description);

}  // namespace tessera
