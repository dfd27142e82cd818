#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;  // NOLINT(readability-identifier-naming): the library's

namespace tessera {

/// Returns the 64-bit XXH3 hash.
uint64_t hash(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash(std::string_view text, uint64_t seed = 0);

/// Returns the value as sixteen lower-case hexadecimal digits.
std::string hash_text(uint64_t value);

/// The XXH3 hash of bytes that arrive in pieces. The value equals hash() of the whole.
class StreamHash {
 public:
  StreamHash();
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

}  // namespace tessera
