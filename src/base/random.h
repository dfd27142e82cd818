#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// A counter-based random number generator (Philox 4x32-10). The value at an index depends on the
/// key and the index alone, never on the number of values drawn before, the rank or the thread.
class CounterRandom {
 public:
  /// The key is (seed, name): for example the run's seed and a parameter's name.
  CounterRandom(uint64_t seed, std::string_view name);

  /// Returns 64 uniform bits.
  uint64_t bits(uint64_t index) const;
  /// Returns a number that is uniform in [0, 1), with 53 bits.
  double uniform(uint64_t index) const;
  /// Returns a standard normal number (Box-Muller over the two halves of one Philox block).
  double normal(uint64_t index) const;

 private:
  uint64_t key_;
};

/// A pseudo-random permutation of [0, size) in O(1) memory. A Feistel network over the counter
/// generator permutes the numbers of 2 half_bits bits. It is applied again to each result that is
/// not below `size`. The same (size, seed) gives the same permutation on every machine.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed);
  /// Returns the number to which the permutation sends `index`, which must be below `size`.
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t index) const;

  uint64_t size_;
  int half_bits_;  // the bits of one half of the network's numbers
  CounterRandom random_;
};

}  // namespace tessera
