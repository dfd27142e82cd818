// What comes from a process that knows the secret, or in its place once it has shown that it does.
#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/ranks_and_values.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/tcp_hello.h"
#include "comm/tcp/wire.h"
#include "comm/tcp_support.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using testing::accept_one;
using testing::free_address;
using testing::kPatience;
using testing::kToken;

/// Stands between a rank and the first one, and alters some bytes that the rank sends after it has
/// shown who it is.
class Altering {
 public:
  struct Change {
    int connection = 0;  ///< the rank's first one or the second
    size_t offset = 0;   ///< after what both prove
    std::string bytes;
  };

  Altering(TcpAddress first, Change change)
      : first_(std::move(first)), change_(std::move(change)), listener_({"127.0.0.1", 0}) {
    acceptor_ = std::jthread([this] {
      for (int connection = 0; connection < 2; ++connection) {
        begin(connection, accept_one(listener_));
      }
    });
  }
  ~Altering() {
    acceptor_.join();
    for (auto& [from, to] : pairs_) {
      from.shut_down();
      to.shut_down();
    }
  }
  TcpAddress address() const { return {"127.0.0.1", listener_.port()}; }

 private:
  static constexpr size_t kHandshake = sizeof(TcpSignedHello);

  void begin(int connection, TcpSocket from) {
    auto& pair = pairs_.emplace_back(std::move(from), TcpSocket::connect(first_, kPatience));
    threads_.emplace_back([this, &pair, alters = connection == change_.connection] {
      forward(pair.first, pair.second, alters);
    });
    threads_.emplace_back([this, &pair] { forward(pair.second, pair.first, false); });
  }
  void forward(TcpSocket& from, TcpSocket& to, bool alters) const {
    std::array<std::byte, 1024> bytes;
    size_t begin = 0;
    try {
      for (;;) {
        from.receive(std::span(bytes).first(1));
        const size_t more = from.receive_some(std::span(bytes).subspan(1));
        for (size_t i = 0; alters && i <= more; ++i) {
          const size_t at = begin + i - kHandshake - change_.offset;
          if (at < change_.bytes.size()) bytes[i] = static_cast<std::byte>(change_.bytes[at]);
        }
        begin += more + 1;
        to.send(std::span(bytes).first(more + 1));
      }
    } catch (const ConnectionLost&) {
      from.shut_down();
      to.shut_down();
    }
  }

  TcpAddress first_;
  Change change_;
  TcpListener listener_;
  std::list<std::pair<TcpSocket, TcpSocket>> pairs_;
  std::list<std::jthread> threads_;
  std::jthread acceptor_;
};

/// Most kinds of calls, of two ranks. Returns the first error; empty if there is none.
std::string try_calls(Processes& processes) {
  processes.set_timeout(milliseconds(150));
  try {
    Communicator group = processes.group(std::vector{1, 0}, "network");
    const Tensor whole = random_tensor({6}, DType::f32, 1);
    const Tensor other = random_tensor({6}, DType::f32, 2);
    const Tensor piece = random_tensor({3}, DType::f32, 3);
    group.all_reduce("sum", whole, whole);
    group.all_gather("gather", even_pieces(6, 2), piece, whole);
    group.broadcast("tell", 1, whole);
    const std::vector<int64_t> rows{2, 2};
    group.all_to_all_rows("rows", whole, rows, other, rows);
    group.all_to_all("blocks", whole, other);
    const Message send{.peer = 1 - group.position(), .tensor = whole};
    const Message receive{.peer = 1 - group.position(), .tensor = other};
    group.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
    processes.report_end("", milliseconds(150));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// A rank that announces a long message and sends little of it takes no memory for it.
TEST(TcpStrangers, ALetterTakesTheMemoryOfWhatHasCome) {
  TcpListener listener({"127.0.0.1", 0});
  std::vector<std::byte> memory;
  std::jthread sender([&] {
    TcpSocket socket = TcpSocket::connect({"127.0.0.1", listener.port()}, kPatience);
    const int64_t length = 64 << 20;
    socket.send(std::as_bytes(std::span(&length, 1)));
    socket.send(std::vector<std::byte>(1000));
  });
  TcpSocket socket = accept_one(listener);
  EXPECT_THROW(receive_message(socket, memory), ConnectionLost);
  EXPECT_LT(memory.capacity(), size_t{1} << 17);
}

/// The first rank ends by an error, or goes on, whatever a rank sends in its messages.
TEST(TcpStrangers, WhatAMemberSendsEndsNoProcess) {
  std::mt19937 random(7);
  const auto any = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  int errors = 0;
  for (int i = 0; i < 12; ++i) {
    Altering::Change change{.connection = i % 4 == 0 ? 0 : 1,
                            .offset = static_cast<size_t>(any(i % 4 == 0 ? 40 : 1100)),
                            .bytes = ""};
    const std::array<int64_t, 5> numbers{-1, 60'000, int64_t{1} << 40, INT64_MIN, any(255)};
    const int64_t number = numbers[static_cast<size_t>(any(4))];
    change.bytes.assign(reinterpret_cast<const char*>(&number), size_t{1} << any(3));
    SCOPED_TRACE(::testing::Message() << "case " << i << ", offset " << change.offset);
    const TcpAddress address = free_address();
    const Altering altering(address, change);
    std::string of_first;
    std::string of_other;
    {
      const std::jthread first([&] {
        FirstProcess processes(address, 2, "host0", kToken, kPatience);
        of_first = try_calls(processes);
      });
      OtherProcess processes(altering.address(), 2, 1, "host1", kToken, kPatience);
      of_other = try_calls(processes);
    }
    if (!of_first.empty() || !of_other.empty()) ++errors;
  }
  EXPECT_GT(errors, 3);
}

}  // namespace
}  // namespace tessera
