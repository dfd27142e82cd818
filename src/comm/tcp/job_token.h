#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

/// A random number that is used once.
using TcpNonce = std::array<std::byte, 32>;
/// A number that shows that its maker knows the token of the run (kTokenVariable).
using TcpProof = std::array<std::byte, 32>;

/// The side that proves that it knows the token. One side's proof is not accepted as the other's.
enum class TcpSide : uint8_t { first, other };

/// Returns a number that cannot be guessed. Throws Error if the system gives none.
TcpNonce fresh_nonce();

/// Returns the proof of a side for what both sides have sent: HMAC-SHA256 with the token as key.
/// The token itself is not sent. Without a token the key is empty, and anyone can make the proof.
TcpProof prove(std::string_view token, TcpSide side, std::span<const std::byte> challenge,
               std::span<const std::byte> hello);

/// Returns whether two proofs are equal, in a time that does not depend on them.
bool same_proof(const TcpProof& a, const TcpProof& b);

}  // namespace tessera
