#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace tessera {

uint64_t hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::string hash_text(uint64_t value) { return fmt::format("{:016x}", value); }

StreamHash::StreamHash()
    : state_(XXH3_createState(), [](XXH3_state_t* state) { XXH3_freeState(state); }) {
  XXH3_64bits_reset(state_.get());
}

void StreamHash::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t StreamHash::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace tessera
