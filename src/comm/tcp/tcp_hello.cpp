#include "comm/tcp/tcp_hello.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "comm/call_errors.h"
#include "comm/launch.h"
#include "comm/tcp/wire.h"

namespace tessera {
namespace {

/// The version of the handshake and of all messages. A machine with another byte order sends other
/// bytes for it, and so is refused.
constexpr uint64_t kVersion = 0x5465737365726134;  // "Tessera4"
constexpr size_t kHostBytes = 256;
/// The time for the first rank to answer. It answers at once, unless it is stopped.
constexpr std::chrono::seconds kAnswerPatience{10};
constexpr std::chrono::milliseconds kHandshakeRetryDelay{20};
/// The time for one try to connect, if there are several addresses.
constexpr std::chrono::milliseconds kTryPatience{200};

/// The error of a process that the first rank refuses.
class Refused : public Error {
 public:
  using Error::Error;
};

template <size_t size>
std::array<std::byte, size> bytes_of(const WireWriter& writer) {
  TESSERA_CHECK(writer.bytes().size() == size, "{} bytes, expected {}", writer.bytes().size(),
                size);
  std::array<std::byte, size> bytes;
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

/// Returns the proof at the end of a signed hello or a verdict.
TcpProof proof_in(std::span<const std::byte> bytes) {
  TcpProof proof;
  std::ranges::copy(bytes.last(proof.size()), proof.begin());
  return proof;
}

/// Returns the bytes of a hello with its proof. They have the size that read_hello() expects.
TcpSignedHello sign(const TcpHello& hello, std::string_view token, const TcpChallenge& challenge) {
  std::array<char, kHostBytes> host{};
  std::memcpy(host.data(), hello.host.data(), std::min(hello.host.size(), kHostBytes - 1));
  WireWriter writer(kVersion, hello.purpose, hello.ranks, hello.rank, host, hello.process,
                    fresh_nonce());
  writer.put(prove(token, TcpSide::other, challenge, writer.bytes()));
  return bytes_of<sizeof(TcpSignedHello)>(writer);
}

/// Makes the handshake on the side of a rank that is not the first. Throws ConnectionLost if the
/// first rank does not answer, and Error if it is not of this run or refuses this process.
void shake_hands(TcpSocket& socket, const TcpAddress& address, const TcpHello& hello,
                 std::string_view token) {
  const auto deadline = std::chrono::steady_clock::now() + kAnswerPatience;
  const auto look = [&] {
    if (std::chrono::steady_clock::now() > deadline) throw ConnectionLost("it does not answer");
  };
  TcpChallenge challenge;
  socket.receive(challenge, look);
  uint64_t version = 0;
  std::memcpy(&version, challenge.data(), sizeof version);
  if (version != kVersion) {
    throw Error("what listens at {} is no first rank of a run of this version of Tessera",
                address.text());
  }
  const TcpSignedHello signed_hello = sign(hello, token, challenge);
  socket.send(signed_hello, look);
  TcpVerdict verdict;
  socket.receive(verdict, look);
  const TcpProof expected =
      prove(token, TcpSide::first, challenge, std::span(signed_hello).first(kHelloBytes));
  if (verdict.front() != std::byte{1} || !same_proof(proof_in(verdict), expected)) {
    throw Error(
        "rank {} ({}) and the first rank, at {}, do not have the same {}; here it is {}. All "
        "processes of a run must have the same",
        hello.rank, hello.host, address.text(), kTokenVariable, token.empty() ? "not set" : "set");
  }
  std::vector<std::byte> memory;
  const std::string refused = receive_message(socket, memory, look).take_text();
  if (!refused.empty()) throw Refused("{}", refused);
}

}  // namespace

TcpChallenge fresh_challenge() {
  return bytes_of<kChallengeBytes>(WireWriter(kVersion, fresh_nonce()));
}

std::optional<TcpHello> read_hello(std::span<const std::byte, kHelloBytes> bytes) {
  WireReader reader(bytes);
  if (reader.take<uint64_t>() != kVersion) return std::nullopt;
  const auto purpose = reader.take<uint8_t>();
  if (purpose > static_cast<uint8_t>(TcpPurpose::calls)) return std::nullopt;
  TcpHello hello{.purpose = static_cast<TcpPurpose>(purpose)};
  reader.take_into(hello.ranks, hello.rank);
  const auto host = reader.take_array<char, kHostBytes>();
  hello.host.assign(host.begin(), std::ranges::find(host, '\0'));
  hello.host = printable(hello.host);
  hello.process = reader.take_array<std::byte, sizeof(TcpNonce)>();
  return hello;
}

bool verify_hello(std::string_view token, const TcpChallenge& challenge,
                  const TcpSignedHello& signed_hello, TcpVerdict& verdict) {
  const auto hello = std::span(signed_hello).first<kHelloBytes>();
  const bool known =
      same_proof(prove(token, TcpSide::other, challenge, hello), proof_in(signed_hello));
  verdict = {};
  if (!known) return false;
  verdict = bytes_of<sizeof(TcpVerdict)>(
      WireWriter(uint8_t{1}, prove(token, TcpSide::first, challenge, hello)));
  return true;
}

FirstRankConnection connect_to_first_rank(std::span<const TcpAddress> addresses,
                                          const TcpHello& hello, std::string_view token,
                                          std::chrono::milliseconds patience) {
  const bool is_only = addresses.size() == 1;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto remaining = [&] {
    const auto now = std::chrono::steady_clock::now();
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - now),
                    std::chrono::milliseconds(0));
  };
  for (;;) {
    std::vector<std::string> reasons;
    for (const TcpAddress& address : addresses) {
      std::string why;
      try {
        std::optional<TcpSocket> socket = is_only
                                              ? TcpSocket::connect(address, remaining())
                                              : TcpSocket::try_connect(address, kTryPatience, why);
        if (socket) {
          shake_hands(*socket, address, hello, token);
          return {std::move(*socket), address};
        }
      } catch (const ConnectionLost& lost) {
        if (is_only && remaining().count() == 0) throw;
        why = lost.what();
      } catch (const Refused&) {
        throw;
      } catch (const Error& error) {
        if (is_only) throw;
        why = error.what();
      }
      reasons.push_back(fmt::format("{} ({})", address.text(), why));
    }
    if (remaining().count() == 0) {
      throw Error(
          "rank {} ({}) has not reached rank 0 {}, at none of the addresses of its machine: {}. "
          "Find out why the machines do not reach each other",
          hello.rank, hello.host, waited_text(patience), fmt::join(reasons, ", "));
    }
    std::this_thread::sleep_for(kHandshakeRetryDelay);
  }
}

}  // namespace tessera
