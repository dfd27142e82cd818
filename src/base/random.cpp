#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include <Random123/philox.h>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

using Philox = r123::Philox4x32;

/// Returns the generator's four words for an index.
Philox::ctr_type philox_block(uint64_t key, uint64_t index) {
  const Philox::ctr_type counter{
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}};
  const Philox::key_type philox_key{{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  return Philox()(counter, philox_key);
}

uint64_t join_words(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

/// Returns the upper 53 bits as a number in [0, 1).
double to_unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

constexpr int kFeistelRounds = 6;

}  // namespace

CounterRandom::CounterRandom(uint64_t seed, std::string_view name) : key_(hash(name, seed)) {}

uint64_t CounterRandom::bits(uint64_t index) const {
  const auto words = philox_block(key_, index);
  return join_words(words[0], words[1]);
}

double CounterRandom::uniform(uint64_t index) const { return to_unit_interval(bits(index)); }

double CounterRandom::normal(uint64_t index) const {
  const auto words = philox_block(key_, index);
  // Box-Muller: sqrt(-2 ln u) cos(2 pi v), where u (`first`) and v are uniform.
  const double first = 1.0 - to_unit_interval(join_words(words[0], words[1]));  // in (0, 1]
  const double angle = 2.0 * std::numbers::pi * to_unit_interval(join_words(words[2], words[3]));
  return std::sqrt(-2.0 * std::log(first)) * std::cos(angle);
}

Permutation::Permutation(uint64_t size, uint64_t seed)
    : size_(size),
      half_bits_((std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2),
      random_(seed, "permutation") {}

/// Runs the rounds (left, right) -> (right, left xor f(round, right)), which are a bijection
/// whatever f is. Here f gives random bits.
uint64_t Permutation::encrypt(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = index >> half_bits_;
  uint64_t right = index & mask;
  for (uint64_t round = 0; round < kFeistelRounds; ++round) {
    // `right` has at most 32 bits, so the upper bits are free for the round.
    const uint64_t mixed = random_.bits((round << 58) ^ right) & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  TESSERA_CHECK(index < size_, "index {} of a permutation of {}", index, size_);
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

}  // namespace tessera
