#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

/// A random number that is used once.
using TcpNonce = std::array<std::byte, 32>;
/// A number that proves that its sender knows the token of the run: a secret (kTokenVariable) that
/// is never sent. The handshake (tcp_hello.h) exchanges proofs.
using TcpProof = std::array<std::byte, 32>;

/// The side of a connection: the first rank, or another rank. It is part of the proof, so that no
/// side can send back the proof that it has received.
enum class TcpSide : uint8_t { first, other };

/// Returns a number that cannot be guessed. Throws Error if the system gives none.
TcpNonce fresh_nonce();

/// Returns the proof of a side: HMAC-SHA256 of the side and of what both sides have sent, with the
/// token as key. Without a token the key is empty, and anyone can make the proof.
TcpProof prove(std::string_view token, TcpSide side, std::span<const std::byte> challenge,
               std::span<const std::byte> hello);

/// Returns whether two proofs are equal, in a time that does not tell how many bytes are equal.
bool same_proof(const TcpProof& a, const TcpProof& b);

}  // namespace tessera
