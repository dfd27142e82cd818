#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/tcp/job_token.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

// The handshake by which two processes prove to each other that they belong to the same run, before
// either reads a message of the other. Its three parts have fixed sizes:
//
//   first rank  challenge  version, nonce
//   other rank  hello      version, purpose, number of ranks, rank, host, number of the process,
//                          nonce; then the proof of this side
//   first rank  verdict    1 if it accepts the proof, and then its own proof; otherwise zeros
//
// Both proofs (job_token.h) are made from the token, the challenge and the hello. What follows the
// handshake is neither encrypted nor signed.

inline constexpr size_t kChallengeBytes = 40;  // 8 + 32
inline constexpr size_t kHelloBytes = 337;     // 8 + 1 + 4 + 4 + 256 + 32 + 32, without the proof
using TcpChallenge = std::array<std::byte, kChallengeBytes>;
/// A hello with its proof.
using TcpSignedHello = std::array<std::byte, kHelloBytes + sizeof(TcpProof)>;
using TcpVerdict = std::array<std::byte, 1 + sizeof(TcpProof)>;

/// The introduction of a process that connects to the first rank.
struct TcpHello {
  TcpPurpose purpose = TcpPurpose::member;
  int ranks = 0;
  int rank = 0;
  std::string host;    ///< at most 255 bytes
  TcpNonce process{};  ///< a random number, which both connections of the process give
};

TcpChallenge fresh_challenge();

/// Returns the hello; none if it is not one of this version. Does not check the proof.
std::optional<TcpHello> read_hello(std::span<const std::byte, kHelloBytes> bytes);

/// Returns whether the hello's proof answers the challenge, so that its sender knows the token.
/// Writes the verdict to send back. `signed_hello` is a hello of this version.
bool verify_hello(std::string_view token, const TcpChallenge& challenge,
                  const TcpSignedHello& signed_hello, TcpVerdict& verdict);

/// A connection to the first rank, and the address at which it was made.
struct FirstRankConnection {
  TcpSocket socket;
  TcpAddress address;
};

/// Connects to the first rank at one of its addresses and makes the handshake. Until `patience` is
/// over, it tries again if nothing listens there, or if the connection is lost before the first
/// rank has answered: the first rank may have closed it in favour of others (HandshakeLimits). If
/// there are several addresses, it tries each for a moment, and one at which something else listens
/// is passed over.
///
/// Throws Error if nothing listens there in time, or if what listens is no first rank of this
/// version, does not know the token or refuses this process; ConnectionLost if it does not answer.
FirstRankConnection connect_to_first_rank(std::span<const TcpAddress> addresses,
                                          const TcpHello& hello, std::string_view token,
                                          std::chrono::milliseconds patience);

}  // namespace tessera
