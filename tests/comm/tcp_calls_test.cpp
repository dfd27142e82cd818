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
  const std::vector<int64_t> rows{1, 2, 3};
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
  const auto add = [&](const char* name, Collective collective, const auto& put) {
    WireWriter writer;
    writer.put<int64_t>(1000);
    writer.put(collective);
    put(writer);
    requests.push_back({name, {writer.bytes().begin(), writer.bytes().end()}});
  };
  const auto add_marked = [&](const char* name, const Fingerprint& of, const auto& put) {
    add(name, of.collective, [&](WireWriter& writer) {
      writer.put_mark(of);
      put(writer);
    });
  };
  const auto nothing = [](WireWriter&) {};
  const auto pieces = [&](WireWriter& writer) { writer.put_layout(layout); };
  add_marked("barrier", mark(Collective::barrier), nothing);
  add_marked("sum", mark(Collective::all_reduce), nothing);
  add_marked("gather", mark(Collective::all_gather), pieces);
  add_marked("scatter", mark(Collective::reduce_scatter), pieces);
  add_marked("blocks", mark(Collective::all_to_all),
             [](WireWriter& writer) { writer.put<int64_t>(12); });
  add_marked("rows", mark(Collective::all_to_all_rows), [&](WireWriter& writer) {
    writer.put_all(std::span(rows));
    writer.put_all(std::span(rows));
    writer.put<int64_t>(4);
  });
  add_marked("broadcast", mark(Collective::broadcast, 7),
             [](WireWriter& writer) { writer.put(2); });
  add("messages", Collective::message, [&](WireWriter& writer) {
    writer.put<int64_t>(1);
    writer.put_mark(mark(Collective::message, 2, 4));
    writer.put(0);
    writer.put<int64_t>(12);
    writer.put<int64_t>(1);
    writer.put_mark(mark(Collective::message, 7, 2));
    writer.put(2);
    writer.put<int64_t>(12);
  });
  return requests;
}

TcpCall read(std::span<const std::byte> request) {
  const std::vector<int> ranks{4, 2, 7};
  WireReader reader(request);
  return read_call(reader, ranks, 1);
}

TEST(TcpCalls, GiveTheSizesOfTheirOperands) {
  const std::map<std::string, std::pair<int64_t, int64_t>> expected{
      {"barrier", {0, 0}},  {"sum", {48, 48}},  {"gather", {16, 48}},   {"scatter", {48, 16}},
      {"blocks", {48, 48}}, {"rows", {96, 96}}, {"broadcast", {0, 48}}, {"messages", {48, 48}}};
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
      return call.given_bytes == call.result_bytes && call.given_bytes % (3 * size) == 0;
    case Collective::all_to_all_rows:
      return call.sent.size() == 3 && call.received.size() == 3 &&
             call.given_bytes == rows(call.sent) && call.result_bytes == rows(call.received);
    case Collective::broadcast:
      return call.root >= 0 && call.root < 3 && call.given_bytes + call.result_bytes == whole;
    case Collective::message:
      return std::ranges::all_of(call.sends, [](const TcpMessage& message) {
        return message.peer >= 0 && message.peer < 3 &&
               (message.elements == 0 || message.elements == message.mark.mark.shape.elements());
      });
    case Collective::barrier:
      return call.given_bytes == 0 && call.result_bytes == 0;
  }
  return false;
}

/// Each byte and each number of each request is altered alone, and each request ends early.
TEST(TcpCalls, ThatAreAlteredFitOrAreRefused) {
  const auto expect_sound = [](std::span<const std::byte> request) {
    try {
      const TcpCall call = read(request);
      EXPECT_TRUE(fits(call));
      EXPECT_GE(call.timeout.count(), 0);
    } catch (const BadMessage&) {
    }
  };
  for (const auto& [name, bytes] : call_requests()) {
    SCOPED_TRACE(name);
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
          expect_sound(altered);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
