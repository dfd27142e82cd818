#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// XXH3, 64 bits.
uint64_t hash(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash(std::string_view text, uint64_t seed = 0);

/// Sixteen lower-case hexadecimal digits.
std::string hash_text(uint64_t value);

/// XXH3 over bytes that arrive in pieces; the same value as `hash` of the whole.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
