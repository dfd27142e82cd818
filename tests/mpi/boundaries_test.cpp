#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/as_threads.h"
#include "mpi/joined.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Bytes from which on calls go another way: blocks that other ranks pass on, messages that MPI
/// sends without asking the receiver first, and blocks that go around a ring.
constexpr std::array<int64_t, 4> kBounds{2 << 10, 4 << 10, 32 << 10, 64 << 10};

/// Numbers of f32 around these bounds.
std::vector<int64_t> lengths_to_try() {
  std::vector<int64_t> lengths{1};
  for (const int64_t bytes : kBounds) {
    for (const int64_t more : {-1, 0, 1}) lengths.push_back(bytes / 4 + more);
  }
  return lengths;
}

TEST(MpiSmallCalls, GiveTheBitsOfThreadsAtTheirEnd) {
  Communicator group = new_group();
  const int ranks = group.size();
  for (const int64_t length : lengths_to_try()) {
    SCOPED_TRACE(length);
    expect_bits_of_threads(group, [&](Communicator& of) {
      std::string result;
      const PieceLayout layout = even_pieces(ranks * length, ranks);
      const Tensor piece = random_tensor({length}, DType::f32, of.position());
      const Tensor whole = random_tensor({ranks * length}, DType::f32, 10 + of.position());
      const Tensor got = random_tensor({ranks * length}, DType::f32, 99);
      of.all_gather("gather", layout, piece, got);
      result += bytes_of(got);
      of.all_to_all("blocks", whole, got);
      result += bytes_of(got);
      of.reduce_scatter("scatter", layout, whole, piece);
      result += bytes_of(piece);
      of.all_reduce("sum", piece, piece);
      result += bytes_of(piece);
      of.broadcast("from the last", ranks - 1, piece);
      result += bytes_of(piece);
      of.broadcast("whole", 0, whole);
      result += bytes_of(whole);
      const Message send{(of.position() + 1) % ranks, piece};
      const Message receive{(of.position() + ranks - 1) % ranks, got.slice(0, length)};
      of.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
      return result + bytes_of(got);
    });
  }
}

TEST(MpiSmallCalls, OfUnevenPiecesGiveTheBitsOfThreads) {
  Communicator group = new_group();
  const int ranks = group.size();
  for (const int64_t last : lengths_to_try()) {
    TypeOnAxis type = sharded(1, {}, 0, 1);
    type.pieces.kind = PieceKind::uneven;
    for (int rank = 0; rank < ranks; ++rank) {
      type.pieces.sizes.push_back(rank + 1 < ranks ? rank * 5 : last / 2);
    }
    int64_t length = 0;
    for (const int64_t size : type.pieces.sizes) length += size;
    const PieceLayout layout = pieces_of({2, length}, type, ranks);
    SCOPED_TRACE(layout.text());
    expect_bits_of_threads(group, [&](Communicator& of) {
      const Tensor piece =
          random_tensor({layout.elements(of.position())}, DType::f32, of.position());
      const Tensor whole = random_tensor({2, length}, DType::f32, 7);
      of.all_gather("gather", layout, piece, whole);
      of.reduce_scatter("scatter", layout, whole, piece);
      return bytes_of(whole) + bytes_of(piece);
    });
  }
}

/// All ranks say of a call for which rank 1 has operands of another length that it made another one
/// than a rank that it names. By TCP that is the first that came. `call(group, length)` makes it.
template <typename Call>
void expect_disagreement(Call&& call) {
  constexpr int64_t small = 2048;
  constexpr int64_t page = 1008;
  for (const auto& [length, other] :
       std::vector<std::pair<int64_t, int64_t>>{{1, small},
                                                {small, 1},
                                                {small, small + 1},
                                                {small + 1, small},
                                                {page, page + 1},
                                                {2 * small, 64 * small}}) {
    Communicator group = new_group();
    SCOPED_TRACE(std::to_string(length) + " and " + std::to_string(other));
    const int64_t own = group.position() == 1 ? other : length;
    EXPECT_THAT(error_of([&] { call(group, own); }),
                AllOf(HasSubstr("do not make the same call"), HasSubstr("rank 1 ("),
                      ContainsRegex("rank [023] \\(.* made call")));
    new_group().barrier("again");
  }
}

TEST(MpiSmallCalls, OfDifferentLengthsAreAnErrorOnAllRanks) {
  expect_disagreement([](Communicator& group, int64_t length) {
    const Tensor value = random_tensor({length}, DType::f32, 1);
    group.all_reduce("sum", value, value);
  });
  expect_disagreement([](Communicator& group, int64_t length) {
    const PieceLayout layout = even_pieces(group.size() * length, group.size());
    const Tensor whole = random_tensor({group.size() * length + 64}, DType::f32, 2);
    const std::string before = bytes_of(whole);
    const auto gather = [&] {
      group.all_gather("gather", layout, random_tensor({length}, DType::f32, 3),
                       whole.view(0, {group.size() * length}));
    };
    const std::string error = error_of(gather);
    EXPECT_EQ(bytes_of(whole), before) << "nothing of another call comes into the result";
    throw Error("{}", error);
  });
  expect_disagreement([](Communicator& group, int64_t length) {
    const Tensor from = random_tensor({group.size() * length}, DType::f32, 4);
    const Tensor to = random_tensor({group.size() * length}, DType::f32, 5);
    group.all_to_all("blocks", from, to);
  });
  expect_disagreement([](Communicator& group, int64_t length) {
    group.broadcast("weights", 0, random_tensor({length}, DType::f32, 6));
  });
}

TEST(MpiSmallCalls, MessagesOfDifferentLengthsAreAnErrorOnBothSides) {
  constexpr int64_t small = 2048;
  for (const auto& [sent, received] :
       std::vector<std::pair<int64_t, int64_t>>{{1, small},
                                                {small, 1},
                                                {small, small + 1},
                                                {small + 1, small},
                                                {9 * small, 2 * small}}) {
    SCOPED_TRACE(std::to_string(sent) + " and " + std::to_string(received));
    Communicator group = new_group();
    const auto says =
        HasSubstr("rank 0 sends message 0 'boundary' of f32 [" + std::to_string(sent) + "]");
    if (group.position() == 0) {
      EXPECT_THAT(error_of([&, length = sent] {
                    group.send("boundary", 1, random_tensor({length}, DType::f32, 1));
                  }),
                  says);
    } else if (group.position() == 1) {
      const Tensor to = random_tensor({received}, DType::f32, 2);
      EXPECT_THAT(error_of([&] { group.receive("boundary", 0, to); }), says);
    }
    new_group().barrier("again");
  }
}

}  // namespace
}  // namespace tessera
