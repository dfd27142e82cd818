#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/mpi/mpi_group_mpi.h"
#include "mpi/as_threads.h"
#include "mpi/joined.h"

namespace tessera {
namespace {

/// The pieces of a whole that are tried, with wholes smaller and larger than the staging memory.
std::vector<std::pair<Shape, TypeOnAxis>> pieces_to_try(int ranks) {
  const int64_t long_dim = 2 * kStagingBytes / (4 * ranks) * ranks;
  const auto of_kind = [&](PieceKind kind, int dim) {
    TypeOnAxis type = sharded(dim, {}, 0, 1);
    type.pieces.kind = kind;
    if (kind == PieceKind::uneven) {
      for (int rank = 0; rank < ranks; ++rank) type.pieces.sizes.push_back(rank * 3);
    }
    return type;
  };
  const int64_t uneven = 3LL * ranks * (ranks - 1) / 2;
  return {
      {Shape{4 * ranks, 3, 5}, of_kind(PieceKind::even, 0)},
      {Shape{3, 2 * ranks, 5}, of_kind(PieceKind::even, 1)},
      {Shape{4 * ranks, 3}, of_kind(PieceKind::zigzag, 0)},
      {Shape{2, uneven, 3}, of_kind(PieceKind::uneven, 1)},
      {Shape{uneven, 7}, of_kind(PieceKind::uneven, 0)},
      {Shape{long_dim}, of_kind(PieceKind::even, 0)},
      {Shape{2, long_dim / 2, 2}, of_kind(PieceKind::zigzag, 1)},
      {Shape{0, 3}, of_kind(PieceKind::even, 0)},
  };
}

/// Tensors with more elements are tried with one type of elements: they take long to fill.
constexpr int64_t kMany = 100000;
constexpr std::array kSumTypes{DType::f64, DType::f32, DType::bf16, DType::i32};

TEST(MpiCollectives, GatherAndScatterAsThreadsDo) {
  Communicator group = new_group();
  for (const auto& [shape, type] : pieces_to_try(group.size())) {
    const PieceLayout layout = pieces_of(shape, type, group.size());
    for (const DType dtype : kSumTypes) {
      if (shape.elements() > kMany && dtype != DType::f32) continue;
      SCOPED_TRACE(layout.text() + " of " + std::string(dtype_name(dtype)));
      expect_bits_of_threads(group, [&, own_shape = shape](Communicator& of) {
        const int64_t own = layout.elements(of.position());
        const Tensor piece = random_tensor(Shape{own}, dtype, of.position());
        const Tensor whole = random_tensor(own_shape, dtype, 99);
        of.all_gather("gather", layout, piece, whole);
        std::string result = bytes_of(whole);
        const Tensor addend = random_tensor(own_shape, dtype, 50 + of.position());
        of.reduce_scatter("scatter", layout, addend, piece);
        result += bytes_of(piece);
        if (layout.is_contiguous(of.position()) && own > 0) {
          int64_t place = 0;
          layout.for_each_range(of.position(),
                                [&](int64_t whole_offset, int64_t piece_offset, int64_t) {
                                  place = whole_offset - piece_offset;
                                });
          const Tensor in_place = addend.view(place, Shape{own});
          of.reduce_scatter("scatter in place", layout, addend, in_place);
          of.all_gather("gather in place", layout, in_place, addend);
          result += bytes_of(addend);
        } else {
          of.reduce_scatter("scatter in place", layout, addend, piece);
          of.all_gather("gather in place", layout, piece, addend);
        }
        return result;
      });
    }
  }
}

TEST(MpiCollectives, ReduceAsThreadsDo) {
  Communicator group = new_group();
  for (const int64_t elements : {0L, 1L, 7L, 1000L, 3 * kStagingBytes / 4 + 5}) {
    for (const DType dtype : kSumTypes) {
      if (elements > kMany && dtype != DType::bf16) continue;
      SCOPED_TRACE(std::to_string(elements) + " of " + std::string(dtype_name(dtype)));
      expect_bits_of_threads(group, [&](Communicator& of) {
        const Tensor from = random_tensor(Shape{elements}, dtype, of.position());
        const Tensor to = random_tensor(Shape{elements}, dtype, 77);
        of.all_reduce("sum", from, to);
        of.all_reduce("sum in place", from, from);
        std::string result = bytes_of(to) + bytes_of(from);
        if (dtype == DType::f32 || dtype == DType::f64) {
          of.all_reduce("maximum", to, from, Reduction::maximum);
          result += bytes_of(from);
        }
        return result;
      });
    }
  }
}

TEST(MpiCollectives, ExchangeBlocksAndRowsAsThreadsDo) {
  Communicator group = new_group();
  const int ranks = group.size();
  for (const int64_t width : {1L, 3L, 4000L}) {
    expect_bits_of_threads(group, [&](Communicator& of) {
      const Tensor from = random_tensor(Shape{2 * ranks, width}, DType::bf16, of.position());
      const Tensor to = random_tensor(Shape{2 * ranks, width}, DType::bf16, 5);
      of.all_to_all("blocks", from, to);
      // Rank i sends (i + 2 j) mod 5 rows to rank j; there is more room than rows.
      std::vector<int64_t> sent;
      std::vector<int64_t> received;
      for (int other = 0; other < ranks; ++other) {
        sent.push_back((of.position() + 2 * other) % 5);
        received.push_back((other + 2 * of.position()) % 5);
      }
      const Tensor rows = random_tensor(Shape{5 * ranks, width}, DType::f32, of.position());
      const Tensor come = random_tensor(Shape{5 * ranks, width}, DType::f32, 6);
      of.all_to_all_rows("rows", rows, sent, come, received);
      return bytes_of(to) + bytes_of(come);
    });
  }
}

TEST(MpiCollectives, BroadcastAsThreadsDo) {
  Communicator group = new_group();
  for (int root = 0; root < group.size(); ++root) {
    expect_bits_of_threads(group, [&](Communicator& of) {
      const Tensor small = random_tensor(Shape{3}, DType::u8, of.position());
      const Tensor large = random_tensor(Shape{1 << 16}, DType::f64, of.position());
      const Tensor none = random_tensor(Shape{0}, DType::f64, of.position());
      of.broadcast("small", root, small);
      of.broadcast("large", root, large);
      of.broadcast("none", root, none);
      return bytes_of(small) + bytes_of(large);
    });
  }
}

TEST(MpiCollectives, SendMessagesAsThreadsDo) {
  Communicator group = new_group();
  const int ranks = group.size();
  for (const int64_t elements : {0L, 5L, 1L << 16}) {
    expect_bits_of_threads(group, [&](Communicator& of) {
      std::string result;
      // Around a ring, several times, and then from each to each.
      for (int turn = 0; turn < 3; ++turn) {
        const Tensor right = random_tensor(Shape{elements}, DType::f32, 10 * turn + of.position());
        const Tensor left = random_tensor(Shape{elements}, DType::f32, 1000);
        const Message send{.peer = (of.position() + 1) % ranks, .tensor = right};
        const Message receive{.peer = (of.position() + ranks - 1) % ranks, .tensor = left};
        of.exchange("ring", std::span(&send, 1), std::span(&receive, 1));
        result += bytes_of(left);
      }
      std::vector<Message> sends;
      std::vector<Message> receives;
      for (int peer = 0; peer < ranks; ++peer) {
        sends.push_back({peer, random_tensor(Shape{elements}, DType::f32, of.position() + peer)});
        receives.push_back({peer, random_tensor(Shape{elements}, DType::f32, 7)});
      }
      of.exchange("each", sends, receives);
      for (const Message& message : receives) result += bytes_of(message.tensor);
      if (of.position() == ranks - 1) of.send("last", 0, receives[0].tensor);
      if (of.position() == 0) {
        of.receive("last", ranks - 1, receives[0].tensor);
        result += bytes_of(receives[0].tensor);
      }
      return result;
    });
  }
}

TEST(MpiCollectives, GroupsOfSomeRanksMeetOnLanesOfTheirOwn) {
  const int rank = joined().rank();
  std::vector<int> same;  // even ranks, or odd ones, the last first
  for (int other = joined().ranks() - 1; other >= 0; --other) {
    if (other % 2 == rank % 2) same.push_back(other);
  }
  Communicator first = joined().group(same, "first");
  Communicator second = joined().group(same, "second");
  for (int turn = 0; turn < 3; ++turn) {
    for (Communicator* group : {&first, &second}) {
      const Tensor sum({1}, DType::i32);
      sum.data<int32_t>()[0] = rank;
      group->all_reduce("sum", sum, sum);
      int32_t expected = 0;
      for (const int other : same) expected += other;
      EXPECT_EQ(sum.data<int32_t>()[0], expected);
      EXPECT_EQ(group->ranks()[static_cast<size_t>(group->position())], rank);
    }
  }
}

}  // namespace
}  // namespace tessera
