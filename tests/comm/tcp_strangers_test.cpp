// What somebody who does not know the secret does at the port by which processes meet.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/ranks_and_values.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/tcp_hello.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/wire.h"
#include "comm/tcp_support.h"
#include "support/error_of.h"
#include "support/fork_child.h"
#include "support/rounds.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using testing::accept_one;
using ::testing::AllOf;
using testing::end_well;
using testing::free_address;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::kToken;

/// A step of a run, in which two ranks sum up.
void step(Processes& processes) {
  Communicator group = processes.group(first_ranks(2), "network");
  const Tensor one({1}, DType::f32);
  set(one, 0, 1);
  group.all_reduce("count", one, one);
  EXPECT_EQ(get(one, 0), 2);
}

/// Waits until the first rank has closed a connection, whatever it has sent before.
void await_close(TcpSocket& socket) {
  std::byte next{};
  EXPECT_THROW(
      {
        for (;;) socket.receive(std::span(&next, 1));
      },
      ConnectionLost);
}

void say(TcpSocket& socket, std::string_view text) { socket.send(std::as_bytes(std::span(text))); }

/// Silent connections, slow ones, those of other programs, and more than there may be.
TEST(TcpStrangers, AreClosedSoonAndDoNotKeepRanksOut) {
  const TcpAddress address = free_address();
  std::jthread first([&] {
    const HandshakeLimits limits{.max_connections = 4, .patience = milliseconds(50)};
    FirstProcess processes(address, 2, "host0", kToken, kPatience, limits);
    // Nobody listens any more.
    EXPECT_THAT(error_of([&] { TcpSocket::connect(address, milliseconds(0)); }),
                HasSubstr("does not answer"));
    step(processes);
    end_well(processes);
  });
  std::list<TcpSocket> strangers;
  for (int i = 0; i < 16; ++i) strangers.push_back(TcpSocket::connect(address, kPatience));
  for (TcpSocket& silent : strangers) await_close(silent);
  TcpSocket browser = TcpSocket::connect(address, kPatience);
  say(browser, "GET / HTTP/1.1\r\nHost: tessera\r\n\r\n");
  await_close(browser);
  TcpSocket wordy = TcpSocket::connect(address, kPatience);
  say(wordy, std::string(4096, 'x'));
  await_close(wordy);
  std::jthread flood([&](const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) TcpSocket::connect(address, milliseconds(0));
    } catch (const Error&) {
      // All have come.
    }
  });
  OtherProcess processes(address, 2, 1, "host1", kToken, kPatience);
  EXPECT_EQ(processes.network(), "lo");
  step(processes);
  end_well(processes);
}

TEST(TcpStrangers, WithoutTheTokenAreNoRanks) {
  const TcpAddress address = free_address();
  std::jthread first([&] {
    FirstProcess processes(address, 2, "host0", kToken, kPatience);
    step(processes);
    end_well(processes);
  });
  const auto refused = [&](std::string_view token) {
    return error_of([&] { OtherProcess(address, 2, 1, "host7", token, kPatience); });
  };
  EXPECT_THAT(refused("another secret of tests"),
              AllOf(HasSubstr("do not have the same TESSERA_TOKEN"), HasSubstr("here it is set")));
  EXPECT_THAT(refused(""), HasSubstr("here it is not set"));
  EXPECT_THAT(error_of([&] { OtherProcess(address, 3, 1, "host7", kToken, kPatience); }),
              HasSubstr("host7 was started as one of 3 processes, and rank 0 (host0) as one of 2"));
  EXPECT_THAT(error_of([&] { OtherProcess(address, 2, 0, "host7", kToken, kPatience); }),
              HasSubstr("there is no rank 0"));
  OtherProcess processes(address, 2, 1, "host1", kToken, kPatience);
  step(processes);
  end_well(processes);
}

TEST(TcpStrangers, ThatClaimToBeTheFirstRankDoNotGetTheOthers) {
  const TcpAddress address = free_address();
  const TcpAddress elsewhere = free_address();
  std::jthread first([&] {
    FirstProcess processes(address, 2, "host0", kToken, kPatience);
    step(processes);
    end_well(processes);
  });
  TcpSocket from_first = TcpSocket::connect(address, kPatience);
  std::array<std::byte, 40> challenge;
  from_first.receive(challenge);
  const std::string error = [&] {
    TcpListener listener(elsewhere);
    std::jthread impostor([&] {
      TcpSocket other = accept_one(listener);
      other.send(challenge);
      std::array<std::byte, 64> some;
      other.receive(some);
      some.fill(std::byte{1});
      other.send(some);
      await_close(other);
    });
    return error_of([&] { OtherProcess(elsewhere, 2, 1, "host1", kToken, kPatience); });
  }();
  EXPECT_THAT(error, HasSubstr("do not have the same TESSERA_TOKEN"));
  OtherProcess processes(address, 2, 1, "host1", kToken, kPatience);
  step(processes);
  end_well(processes);
}

TEST(TcpStrangers, OneOfTwoThatClaimARankIsRefused) {
  const TcpAddress address = free_address();
  const auto serve = [](Processes& processes) {
    processes.group(first_ranks(3), "network").barrier("step");
    end_well(processes);
  };
  std::jthread first([&] {
    FirstProcess processes(address, 3, "host0", kToken, kPatience);
    serve(processes);
  });
  std::promise<std::string> refused;
  const auto come = [&](const char* host) {
    return std::jthread([&, host] {
      std::optional<OtherProcess> processes;
      try {
        processes.emplace(address, 3, 1, host, kToken, kPatience);
      } catch (const Error& error) {
        return refused.set_value(error.what());
      }
      serve(*processes);
    });
  };
  const std::jthread one = come("host1");
  const std::jthread other = come("host1");
  EXPECT_EQ(refused.get_future().get(),
            "two processes say that they are rank 1: one on host1, one on host1");
  OtherProcess last(address, 3, 2, "host2", kToken, kPatience);
  serve(last);
}

/// The process of the first rank has few descriptors, and strangers take all that it has left. They
/// give way to a rank that comes.
TEST(TcpStrangers, TakeNoDescriptorThatARankNeeds) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined behaviour sanitizer reads an object's type through a pipe, and "
                  "takes any object for a wrong one if no descriptor is left";
#endif
  const TcpAddress address = free_address();
  int many_have_come[2];
  ASSERT_EQ(::pipe(many_have_come), 0);
  const pid_t stranger = testing::fork_child();
  if (stranger == 0) {
    std::list<TcpSocket> idle;
    for (;;) {
      try {
        idle.push_back(TcpSocket::connect(address, milliseconds(100)));
        if (idle.size() == 60 && ::write(many_have_come[1], "", 1) != 1) std::_Exit(1);
        if (idle.size() > 200) idle.pop_front();
      } catch (const std::exception&) {
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
  }
  const pid_t member = testing::fork_child();
  if (member == 0) {
    char word = 0;
    int status = ::read(many_have_come[0], &word, 1) == 1 ? 0 : 1;
    try {
      OtherProcess processes(address, 2, 1, "host1", kToken, kPatience);
      processes.group(first_ranks(2), "network").barrier("step");
      processes.report_end("", kPatience);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 1;
    }
    std::_Exit(status);
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 24, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    FirstProcess processes(address, 2, "host0", kToken, kPatience);
    processes.group(first_ranks(2), "network").barrier("step");
    end_well(processes);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  int status = -1;
  EXPECT_EQ(::waitpid(member, &status, 0), member);
  EXPECT_EQ(status, 0);
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
  for (const int end : many_have_come) ::close(end);
}

/// Returns the value of a line of /proc/self/status, in KiB.
int64_t status_kib(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

/// Somebody who connects often to the port of a first rank.
class Flood {
 public:
  Flood(TcpAddress address, uint32_t seed) : address_(std::move(address)), random_(seed) {}

  /// Connects once, and sends something. Leaves some connections open, and closes others at once.
  void connect() {
    try {
      TcpSocket socket = TcpSocket::connect(address_, kPatience);
      // Closed connections then leave nothing behind in the system.
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      send(socket);
      if (any(9) == 0) open_.push_back(std::move(socket));
      if (open_.size() > 100) open_.pop_front();
    } catch (const ConnectionLost&) {  // the first rank has closed it
    }
  }

 private:
  uint64_t any(uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random_); }
  std::vector<std::byte> any_bytes(size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }

  /// Returns the hello of a process that says that it is rank 1, with the proof for a challenge.
  static std::vector<std::byte> hello(const TcpChallenge& challenge, std::string_view token,
                                      TcpPurpose purpose) {
    WireWriter writer;
    writer.put(challenge[0]);
    for (size_t i = 1; i < sizeof(uint64_t); ++i) writer.put(challenge[i]);  // the version
    writer.put(purpose);
    writer.put(2);  // ranks
    writer.put(1);  // rank
    writer.put(std::array<char, 256>{"stranger"});
    writer.put(TcpNonce{});
    writer.put(TcpNonce{});
    writer.put(prove(token, TcpSide::other, challenge, writer.bytes()));
    return {writer.bytes().begin(), writer.bytes().end()};
  }

  void send(TcpSocket& socket) {
    const auto purpose = static_cast<TcpPurpose>(any(1));
    switch (any(6)) {
      case 0:  // nothing
        return;
      case 1:
        return socket.send(any_bytes(any(1000)));
      case 2: {  // a huge length, and a little of it
        const int64_t length = INT64_MAX >> any(40);
        socket.send(std::as_bytes(std::span(&length, 1)));
        return socket.send(any_bytes(any(100)));
      }
      case 3: {  // without the secret
        TcpChallenge challenge;
        socket.receive(challenge);
        return socket.send(hello(challenge, any(1) == 0 ? "" : "another secret", purpose));
      }
      case 4: {  // what a rank would have sent on another connection: a letter that is replayed
        TcpChallenge challenge;
        socket.receive(challenge);
        if (recorded_.empty()) {
          recorded_ = hello(challenge, kToken, purpose);
          recorded_for_ = challenge;
        }
        if (challenge != recorded_for_) return socket.send(recorded_);
        return;
      }
      case 5: {  // a true letter of which a byte is another
        TcpChallenge challenge;
        socket.receive(challenge);
        std::vector<std::byte> bytes = hello(challenge, kToken, purpose);
        bytes[any(bytes.size() - 1)] ^= std::byte{1};
        return socket.send(bytes);
      }
      case 6: {  // a hello, and what only members may say
        socket.send(any_bytes(kHelloBytes + sizeof(TcpProof)));
        WireWriter abort;
        abort.put(MemberMessage::abort);
        abort.put(1);
        return send_message(socket, abort);
      }
      default:
        return;
    }
  }

  TcpAddress address_;
  std::mt19937_64 random_;
  std::vector<std::byte> recorded_;  // a hello of a rank
  TcpChallenge recorded_for_{};
  std::list<TcpSocket> open_;
};

/// Many thousand connections of strangers. TESSERA_ROUNDS=100 in the environment makes 100,000.
TEST(TcpStrangers, ByTheThousandTakeNoRankAndLittleMemory) {
  constexpr int kEachRound = 1000;
  constexpr int kThreads = 2;
  const int rounds = testing::rounds(3);
  const TcpAddress address = free_address();
  const int64_t descriptors_before = open_descriptors();
  std::jthread first([&] {
    FirstProcess processes(address, 2, "host0", kToken, kPatience + std::chrono::seconds(rounds));
    EXPECT_EQ(processes.hosts()[1], "host1");
    step(processes);
    end_well(processes);
  });
  int64_t most_descriptors = 0;
  int64_t memory_before = 0;
  {
    std::vector<Flood> floods;
    for (int i = 0; i < kThreads; ++i) floods.emplace_back(address, i);
    for (int round = 0; round < rounds; ++round) {
      {
        std::vector<std::jthread> threads;
        for (Flood& flood : floods) {
          threads.emplace_back([&flood] {
            for (int i = 0; i < kEachRound / kThreads; ++i) flood.connect();
          });
        }
      }
      most_descriptors = std::max(most_descriptors, open_descriptors());
      if (round == 0) memory_before = status_kib("VmRSS:");
    }
  }
  // Both ends of the strangers' connections are in this process.
  const int64_t of_strangers = kThreads * 101;
  const auto of_first = static_cast<int64_t>(HandshakeLimits().max_connections) + 8;
  EXPECT_LE(most_descriptors, descriptors_before + of_strangers + of_first);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(status_kib("VmRSS:"), memory_before + 16 * 1024);
#endif
  OtherProcess processes(address, 2, 1, "host1", kToken, kPatience);
  step(processes);
  end_well(processes);
}

}  // namespace
}  // namespace tessera
