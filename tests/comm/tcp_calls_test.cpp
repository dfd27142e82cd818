// Requests for calls that somebody may have altered.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/ranks_and_values.h"
#include "comm/tcp/tcp_call.h"

namespace tessera {
namespace {

struct Request {
  const char* name;
  std::vector<std::byte> bytes;
};

/// One request of each kind of call, of the rank at position 1 of the group [4, 2, 7].
std::vector<Request> call_requests() {
  std::vector<Request> requests;
  const PieceLayout layout = even_pieces(12, 3);
  const auto mark = [&](Collective collective, int from = -1, int to = -1) {
    const bool pieces =
        collective == Collective::all_gather || collective == Collective::reduce_scatter;
    return Fingerprint{.name = "node",
                       .collective = collective,
                       .dtype = DType::f32,
                       .shape = Shape{3, 4},
                       .from = from,
                       .to = to,
                       .layout = pieces ? layout.hash() : 0};
  };
  const auto add = [&](const char* name, const TransportCall& call) {
    WireWriter writer;
    put_call(writer, std::chrono::milliseconds(1000), call);
    requests.push_back({name, {writer.bytes().begin(), writer.bytes().end()}});
  };
  const auto add_pieces = [&](const char* name, Collective collective) {
    add(name, {.mark = mark(collective), .moves = collective, .layout = &layout});
  };
  const auto add_rows = [&](const char* name, Collective collective,
                            const std::vector<int64_t>& counts) {
    add(name, {.mark = mark(collective),
               .moves = collective,
               .sent = counts,
               .received = counts,
               .row_elements = 4});
  };
  add("barrier", {.mark = mark(Collective::barrier)});
  add("sum", {.mark = mark(Collective::all_reduce), .moves = Collective::all_reduce});
  add_pieces("gather", Collective::all_gather);
  add_pieces("scatter", Collective::reduce_scatter);
  add_rows("blocks", Collective::all_to_all, {1, 1, 1});
  add_rows("rows", Collective::all_to_all_rows, {1, 2, 3});
  add("broadcast",
      {.mark = mark(Collective::broadcast, 7), .moves = Collective::broadcast, .root = 2});
  return requests;
}

/// A message of f32 [3, 4] that the same rank posts.
std::vector<std::byte> post_request(bool sent, int from, int to, int peer, int64_t elements = 12) {
  WireWriter writer;
  const Fingerprint mark{.name = "node",
                         .collective = Collective::message,
                         .dtype = DType::f32,
                         .shape = Shape{3, 4},
                         .from = from,
                         .to = to};
  writer.put(sent, mark, peer, elements);
  return {writer.bytes().begin(), writer.bytes().end()};
}

TcpMessage read_message(std::span<const std::byte> request) {
  const std::vector<int> ranks{4, 2, 7};
  WireReader reader(request);
  return read_post(reader, ranks, 1);
}

TcpCall read(std::span<const std::byte> request) {
  const std::vector<int> ranks{4, 2, 7};
  WireReader reader(request);
  return read_call(reader, ranks, 1);
}

TEST(TcpCalls, GiveTheSizesOfTheirOperands) {
  const std::map<std::string, std::pair<int64_t, int64_t>> expected{
      {"barrier", {0, 0}},  {"sum", {48, 48}},  {"gather", {16, 48}},  {"scatter", {48, 16}},
      {"blocks", {48, 48}}, {"rows", {96, 96}}, {"broadcast", {0, 48}}};
  for (const auto& [name, bytes] : call_requests()) {
    const TcpCall call = read(bytes);
    EXPECT_EQ(std::pair(call.given_bytes, call.result_bytes), expected.at(name)) << name;
  }
}

/// Whether operands are as large as what a transport reads and writes, for three ranks.
bool fits(const TcpCall& call) {
  const int64_t size = dtype_size(call.mark.mark.dtype);
  const int64_t whole = call.mark.mark.shape.elements() * size;
  const auto rows = [&](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0}) * call.row_elements * size;
  };
  switch (call.moves) {
    case Collective::all_gather:
      return call.given_bytes == call.layout->elements(1) * size && call.result_bytes == whole &&
             call.layout->elements() * size == whole;
    case Collective::reduce_scatter:
      return call.result_bytes == call.layout->elements(1) * size && call.given_bytes == whole &&
             call.layout->elements() * size == whole;
    case Collective::all_reduce:
      return call.given_bytes == whole && call.result_bytes == whole;
    case Collective::all_to_all:
    case Collective::all_to_all_rows:
      return call.sent.size() == 3 && call.received.size() == 3 &&
             call.given_bytes == rows(call.sent) && call.result_bytes == rows(call.received);
    case Collective::broadcast:
      return call.root >= 0 && call.root < 3 && call.given_bytes + call.result_bytes == whole;
    case Collective::message:
      return false;  // it is posted
    case Collective::barrier:
      return call.given_bytes == 0 && call.result_bytes == 0;
  }
  return false;
}

/// Calls read(request) for a request in which each byte and each number is altered alone. It may
/// throw BadMessage only, and does so if the request ends early or late.
template <typename Read>
void read_altered(const std::vector<std::byte>& bytes, Read&& read) {
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(read(std::span(bytes).first(length)), BadMessage) << length;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(read(longer), BadMessage);
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int64_t number : {int64_t{-1}, int64_t{60'000}, int64_t{1} << 47, INT64_MIN}) {
      for (const size_t width : {1U, 8U}) {
        if (at + width > bytes.size()) continue;
        std::vector<std::byte> altered = bytes;
        std::memcpy(altered.data() + at, &number, width);
        try {
          read(altered);
        } catch (const BadMessage&) {
        }
      }
    }
  }
}

TEST(TcpCalls, ThatAreAlteredFitOrAreRefused) {
  for (const auto& [name, bytes] : call_requests()) {
    SCOPED_TRACE(name);
    read_altered(bytes, [](std::span<const std::byte> request) {
      const TcpCall call = read(request);
      EXPECT_TRUE(fits(call));
      EXPECT_GE(call.timeout.count(), 0);
    });
  }
}

TEST(TcpCalls, PostMessagesBetweenTheRanksThatTheyName) {
  const TcpMessage sent = read_message(post_request(true, 2, 4, 0));
  EXPECT_TRUE(sent.sent);
  EXPECT_EQ(sent.bytes(), 48);
  EXPECT_FALSE(read_message(post_request(false, 7, 2, 2)).sent);
  EXPECT_EQ(read_message(post_request(true, 2, 2, 1)).peer, 1) << "to itself";
  EXPECT_EQ(read_message(post_request(true, 2, 4, 0, 0)).bytes(), 0) << "devices move it";
  for (const auto& bytes :
       {post_request(true, 4, 2, 0), post_request(false, 2, 4, 0), post_request(true, 2, 4, 2),
        post_request(true, 2, 4, 3), post_request(true, 2, 4, -1), post_request(true, 2, 4, 0, 11),
        post_request(true, 2, 4, 0, -12)}) {
    EXPECT_THROW(read_message(bytes), BadMessage);
  }
}

TEST(TcpCalls, PostsThatAreAlteredFitOrAreRefused) {
  for (const bool sent : {true, false}) {
    const auto bytes = sent ? post_request(true, 2, 4, 0) : post_request(false, 7, 2, 2);
    read_altered(bytes, [](std::span<const std::byte> request) {
      const TcpMessage message = read_message(request);
      EXPECT_TRUE(message.peer >= 0 && message.peer < 3);
      EXPECT_TRUE(message.elements == 0 || message.elements == message.mark.mark.shape.elements());
    });
  }
}

TEST(TcpCalls, WaitForPostsWithinATime) {
  WireWriter writer;
  writer.put(std::chrono::milliseconds(1000), std::vector<int64_t>{3, 1});
  const std::vector<std::byte> bytes{writer.bytes().begin(), writer.bytes().end()};
  const auto read_bytes = [](std::span<const std::byte> request) {
    WireReader reader(request);
    return read_wait(reader);
  };
  EXPECT_EQ(read_bytes(bytes).posts, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(read_bytes(bytes).timeout, std::chrono::milliseconds(1000));
  read_altered(bytes, [&](std::span<const std::byte> request) {
    EXPECT_GE(read_bytes(request).timeout.count(), 0);
  });
  WireWriter none;
  none.put(std::chrono::milliseconds(1000), std::vector<int64_t>());
  EXPECT_THROW(read_bytes(none.bytes()), BadMessage);
}

}  // namespace
}  // namespace tessera
