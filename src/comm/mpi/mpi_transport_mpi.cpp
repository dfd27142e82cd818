#include "comm/mpi/mpi_transport_mpi.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_pieces_mpi.h"
#include "comm/mpi/mpi_posts_mpi.h"
#include "comm/mpi/mpi_sums_mpi.h"
#include "comm/mpi/piece_cursor.h"
#include "comm/mpi/staging.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

/// The counts and offsets of blocks of bytes, by position, as MPI takes them: in int.
struct ByteBlocks {
  explicit ByteBlocks(size_t ranks) : counts(ranks), offsets(ranks) {}

  void set(size_t position, int64_t count, int64_t offset) {
    counts[position] = static_cast<int>(count);
    offsets[position] = static_cast<int>(offset);
  }

  std::vector<int> counts;
  std::vector<int> offsets;
};

/// The transport over MPI. The ranks of each call meet (MpiGroup), and compare their fingerprints.
/// Small operands are exchanged in the meeting. One of MPI's collectives moves larger operands
/// after the meeting, and MpiSums takes their sums. MPI 3 counts bytes in int, so operands above
/// INT_MAX bytes go in messages or rounds.
///
/// A call of small operands moves other bytes, but counts them as a call of larger operands does.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiGroup& group, MpiNews& news) : group_(group), sums_(group), posts_(group, news) {}

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    group_.call(mark, [&] {
      const int64_t element_bytes = dtype_size(to.dtype());
      const int64_t max_bytes = layout.max_elements() * element_bytes;
      if (group_.is_small(max_bytes)) {
        meet_with_tensor(mark, &layout, from, max_bytes);
        for (int rank = 0; rank < ranks(); ++rank) {
          PieceCursor(layout, rank, element_bytes)
              .scatter(group_.bytes_of(rank), layout.elements(rank), to.raw());
        }
      } else {
        group_.meet(mark, &layout);
        gather_pieces(layout, from, to);
      }
      count_received((layout.elements() - layout.elements(position())) * element_bytes);
    });
  }

  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    group_.call(mark, [&] {
      const int64_t max_bytes = layout.max_elements() * dtype_size(to.dtype());
      if (group_.are_small_blocks(max_bytes)) {
        meet_with_pieces(mark, layout, from, max_bytes);
        reduce(mark.reduction, to.dtype(), given_bytes(), 0, to.elements(), to.raw());
      } else {
        group_.meet(mark, &layout);
        sums_.reduce_scatter(mark, layout, from, to);
      }
      count_received((ranks() - 1) * to.bytes());
    });
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, [&] {
      const int64_t own = slice_begin(to.elements(), ranks(), position() + 1) -
                          slice_begin(to.elements(), ranks(), position());
      if (group_.is_small_for_all(from.bytes())) {
        meet_with_tensor(mark, nullptr, from, from.bytes());
        reduce(mark.reduction, to.dtype(), given_bytes(), 0, to.elements(), to.raw());
      } else {
        group_.meet(mark);
        sums_.reduce_slice(mark, from, to);
        gather_slices(to);
      }
      count_received(((ranks() - 1) * own + to.elements() - own) * dtype_size(to.dtype()));
    });
  }

  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, [&] {
      const int64_t block_bytes = to.bytes() / ranks();
      if (group_.are_small_blocks(block_bytes)) {
        group_.begin_small(block_bytes);
        for (int rank = 0; rank < ranks(); ++rank) {
          copy(from.raw() + rank * block_bytes, block_bytes, group_.own_bytes_for(rank));
        }
        group_.meet_small(mark, nullptr, /*blocks=*/true);
        for (int rank = 0; rank < ranks(); ++rank) {
          copy(group_.bytes_of(rank), block_bytes, to.raw() + rank * block_bytes);
        }
      } else {
        group_.meet(mark);
        exchange_blocks(mark, from, to, block_bytes);
      }
      count_received(to.bytes() - block_bytes);
    });
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received_rows) override {
    group_.call(mark, [&] {
      const int64_t max_rows = group_.meet_with_rows(mark, sent, received_rows);
      const int64_t row_bytes = to.shape().with_dim(0, 1).elements() * dtype_size(to.dtype());
      // All ranks must choose alike, so the rows of one rank alone do not decide.
      if (max_rows * row_bytes <= INT_MAX) {
        const ByteBlocks out = rows_of(sent, row_bytes);
        const ByteBlocks in = rows_of(received_rows, row_bytes);
        check_mpi(
            MPI_Alltoallv(from.raw(), out.counts.data(), out.offsets.data(), MPI_BYTE, to.raw(),
                          in.counts.data(), in.offsets.data(), MPI_BYTE, group_.data()),
            "MPI_Alltoallv");
      } else {
        exchange_pieces(group_, mark, pieces_of_rows(from, sent, row_bytes),
                        pieces_of_rows(to, received_rows, row_bytes));
      }
      for (int rank = 0; rank < ranks(); ++rank) {
        if (rank != position())
          count_received(received_rows[static_cast<size_t>(rank)] * row_bytes);
      }
    });
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    group_.call(mark, [&] {
      if (group_.is_small_of_one(tensor.bytes())) {
        group_.begin_small(tensor.bytes());
        if (root == position()) copy(tensor.raw(), tensor.bytes(), group_.own_bytes());
        group_.meet_small(mark);
        if (root != position()) copy(group_.bytes_of(root), tensor.bytes(), tensor.raw());
      } else {
        group_.meet(mark);
        broadcast_bytes(tensor.raw(), tensor.bytes(), root);
      }
      if (root != position()) count_received(tensor.bytes());
    });
  }

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    group_.throw_if_failed();
    return posts_.post(message, sent);
  }

  void wait(std::span<TransportPost* const> posts) override {
    if (posts.empty()) return;
    group_.call(posts_.first_to_move(posts).mark(), [&] {
      posts_.wait(posts);
      for (const TransportPost* const post : posts) {
        const bool of_other = post->peer() != position();
        if (!post->sent() && of_other) count_received(post->tensor().bytes());
      }
    });
  }

  void barrier(const Fingerprint& mark) override {
    group_.call(mark, [&] {
      group_.begin_small(0);
      group_.meet_small(mark);
    });
  }

  void throw_if_broken() override { group_.throw_if_broken(); }

 private:
  int ranks() const { return group_.size(); }
  int position() const { return group_.position(); }

  static void copy(const std::byte* from, int64_t bytes, std::byte* to) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  /// Meets the other ranks and gives them a tensor. All ranks use slots of `max_bytes` bytes, the
  /// size of the largest of their tensors.
  void meet_with_tensor(const Fingerprint& mark, const PieceLayout* layout, const Tensor& from,
                        int64_t max_bytes) {
    group_.begin_small(max_bytes);
    copy(from.raw(), from.bytes(), group_.own_bytes());
    group_.meet_small(mark, layout);
  }
  /// Returns the bytes that each rank gave.
  std::span<const std::byte* const> given_bytes() {
    given_bytes_.clear();
    for (int rank = 0; rank < ranks(); ++rank) given_bytes_.push_back(group_.bytes_of(rank));
    return given_bytes_;
  }

  /// Meets the other ranks and gives each its piece of a whole, in slots of `max_bytes` bytes.
  void meet_with_pieces(const Fingerprint& mark, const PieceLayout& layout, const Tensor& whole,
                        int64_t max_bytes) {
    group_.begin_small(max_bytes);
    for (int rank = 0; rank < ranks(); ++rank) {
      PieceCursor(layout, rank, dtype_size(whole.dtype()))
          .gather(whole.raw(), layout.elements(rank), group_.own_bytes_for(rank));
    }
    group_.meet_small(mark, &layout, /*blocks=*/true);
  }

  /// Exchanges blocks of one size, by messages if MPI cannot count all bytes.
  void exchange_blocks(const Fingerprint& mark, const Tensor& from, const Tensor& to,
                       int64_t block_bytes) {
    if (to.bytes() <= INT_MAX) {
      check_mpi(MPI_Alltoall(from.raw(), static_cast<int>(block_bytes), MPI_BYTE, to.raw(),
                             static_cast<int>(block_bytes), MPI_BYTE, group_.data()),
                "MPI_Alltoall");
      return;
    }
    const std::vector<int64_t> one_each(static_cast<size_t>(ranks()), 1);
    exchange_pieces(group_, mark, pieces_of_rows(from, one_each, block_bytes),
                    pieces_of_rows(to, one_each, block_bytes));
  }

  /// Returns blocks of rows that follow each other. A row has `row_bytes` bytes.
  static ByteBlocks rows_of(std::span<const int64_t> rows, int64_t row_bytes) {
    ByteBlocks blocks(rows.size());
    int64_t offset = 0;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      blocks.set(rank, rows[rank] * row_bytes, offset);
      offset += rows[rank] * row_bytes;
    }
    return blocks;
  }

  static std::vector<MpiPiece> pieces_of_rows(const Tensor& tensor, std::span<const int64_t> rows,
                                              int64_t row_bytes) {
    std::vector<MpiPiece> pieces;
    std::byte* memory = tensor.raw();
    for (const int64_t count : rows) {
      pieces.push_back({static_cast<int>(pieces.size()), memory, count * row_bytes});
      memory += count * row_bytes;
    }
    return pieces;
  }

  /// Gathers pieces into the whole `to`, by one call of MPI if it can receive them there.
  void gather_pieces(const PieceLayout& layout, const Tensor& from, const Tensor& to) {
    if (to.bytes() > INT_MAX || !layout.all_contiguous()) {
      gather_in_rounds(layout, from, to);
    } else if (layout.is_even()) {
      const bool in_place = from.raw() == to.raw() + position() * from.bytes();
      gather_even(in_place ? nullptr : from.raw(), from.bytes(), to.raw());
    } else {
      gather_in_place(layout, from, to);
    }
  }

  /// Gathers blocks of one size. `from` is null if this rank's block is already in `to`.
  void gather_even(const std::byte* from, int64_t bytes, std::byte* to) {
    check_mpi(MPI_Allgather(from == nullptr ? MPI_IN_PLACE : from, static_cast<int>(bytes),
                            MPI_BYTE, to, static_cast<int>(bytes), MPI_BYTE, group_.data()),
              "MPI_Allgather");
  }

  /// Gathers contiguous pieces of any sizes, each into its place in the whole.
  void gather_in_place(const PieceLayout& layout, const Tensor& from, const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    ByteBlocks blocks(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks.set(static_cast<size_t>(rank), layout.elements(rank) * element_bytes,
                 layout.piece_begin(rank) * element_bytes);
    }
    std::byte* const own = to.raw() + blocks.offsets[static_cast<size_t>(position())];
    gather(from.raw() == own ? nullptr : from.raw(), from.bytes(), to.raw(), blocks);
  }

  /// Gathers blocks of bytes. `from` is null if this rank's block is already in `to`.
  void gather(const std::byte* from, int64_t bytes, std::byte* to, const ByteBlocks& blocks) {
    check_mpi(
        MPI_Allgatherv(from == nullptr ? MPI_IN_PLACE : from, static_cast<int>(bytes), MPI_BYTE, to,
                       blocks.counts.data(), blocks.offsets.data(), MPI_BYTE, group_.data()),
        "MPI_Allgatherv");
  }

  /// Gathers pieces that are not contiguous, or whose whole has more bytes than MPI counts.
  void gather_in_rounds(const PieceLayout& layout, const Tensor& from, const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const int64_t per_round = std::max<int64_t>(1, kStagingBytes / (element_bytes * ranks()));
    std::byte* const arrived = arrived_.bytes(per_round * element_bytes * ranks());
    std::vector<PieceCursor> cursors;
    for (int rank = 0; rank < ranks(); ++rank) cursors.emplace_back(layout, rank, element_bytes);
    const int64_t longest = layout.max_elements();
    for (int64_t begin = 0; begin < longest; begin += per_round) {
      const auto count = [&](int rank) {
        return std::clamp<int64_t>(layout.elements(rank) - begin, 0, per_round);
      };
      ByteBlocks blocks(static_cast<size_t>(ranks()));
      for (int rank = 0; rank < ranks(); ++rank) {
        blocks.set(static_cast<size_t>(rank), count(rank) * element_bytes,
                   rank * per_round * element_bytes);
      }
      const int64_t own = count(position());
      // Without elements the address of `from` may be null, which here means "already in place".
      gather(own == 0 ? arrived : from.raw() + begin * element_bytes, own * element_bytes, arrived,
             blocks);
      for (int rank = 0; rank < ranks(); ++rank) {
        cursors[static_cast<size_t>(rank)].scatter(arrived + rank * per_round * element_bytes,
                                                   count(rank), to.raw());
      }
    }
  }

  /// Gathers the slices of an all-reduce. Each rank's own slice is already in `to`.
  void gather_slices(const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const auto begin_of = [&](int rank) {
      return slice_begin(to.elements(), ranks(), rank) * element_bytes;
    };
    const auto bytes_of = [&](int rank) { return begin_of(rank + 1) - begin_of(rank); };
    if (to.bytes() > INT_MAX) {
      for (int rank = 0; rank < ranks(); ++rank) {
        broadcast_bytes(to.raw() + begin_of(rank), bytes_of(rank), rank);
      }
    } else if (to.elements() % ranks() == 0) {
      gather_even(nullptr, to.bytes() / ranks(), to.raw());
    } else {
      ByteBlocks blocks(static_cast<size_t>(ranks()));
      for (int rank = 0; rank < ranks(); ++rank) {
        blocks.set(static_cast<size_t>(rank), bytes_of(rank), begin_of(rank));
      }
      gather(nullptr, 0, to.raw(), blocks);
    }
  }

  /// Broadcasts bytes, in parts that MPI can count.
  void broadcast_bytes(std::byte* memory, int64_t bytes, int root) {
    for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
      const int64_t part = std::min(kMostMessageBytes, bytes - done);
      check_mpi(MPI_Bcast(memory + done, static_cast<int>(part), MPI_BYTE, root, group_.data()),
                "MPI_Bcast");
    }
  }

  MpiGroup& group_;
  MpiSums sums_;
  MpiPosts posts_;
  StagingMemory arrived_;
  std::vector<const std::byte*> given_bytes_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(MpiGroup& group, MpiNews& news) {
  return std::make_unique<MpiTransport>(group, news);
}

}  // namespace tessera
