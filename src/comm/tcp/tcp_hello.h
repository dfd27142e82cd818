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

// The handshake by which two processes find out that they are of one run, before either reads a
// message of the other. All that they send has a fixed size:
//
//   first  challenge  version, nonce
//   other  hello      version, purpose, number of ranks, rank, host, number of the process, nonce;
//                     its proof
//   first  verdict    whether it is admitted; the first rank's proof if so
//
// The proofs (job_token.h) are over the challenge and the hello. What follows is neither encrypted
// nor signed.

inline constexpr size_t kChallengeBytes = 40;
inline constexpr size_t kHelloBytes = 337;
using TcpChallenge = std::array<std::byte, kChallengeBytes>;
/// A hello with its proof.
using TcpSignedHello = std::array<std::byte, kHelloBytes + sizeof(TcpProof)>;
using TcpVerdict = std::array<std::byte, 1 + sizeof(TcpProof)>;

/// The introduction of a process that connects to the first rank.
struct TcpHello {
  TcpPurpose purpose = TcpPurpose::member;
  int ranks = 0;
  int rank = 0;
  std::string host;  ///< at most 255 bytes
  /// The number of the process: the same for all its connections.
  TcpNonce process{};
};

TcpChallenge fresh_challenge();

/// Returns the hello if it is one of this version; none if not. Its sender is not proven yet.
std::optional<TcpHello> read_hello(std::span<const std::byte, kHelloBytes> bytes);

/// Returns whether the sender of the hello, which answers the challenge, knows the token. Writes
/// the verdict that is sent back. `signed_hello` is a hello of this version.
bool judge_hello(std::string_view token, const TcpChallenge& challenge,
                 const TcpSignedHello& signed_hello, TcpVerdict& verdict);

/// Connects to the first rank at the address and introduces this process. Tries again, until
/// `patience` is over, if nothing listens there or the connection is lost before the first rank has
/// answered: others may keep it busy. Throws Error if what listens there is not a first rank of
/// this version, does not know the token or refuses this process; ConnectionLost if it does not
/// answer.
TcpSocket come_to_first(const TcpAddress& address, const TcpHello& hello, std::string_view token,
                        std::chrono::milliseconds patience);

}  // namespace tessera
