#include "comm/mpi/mpi_transport_mpi.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/mpi/mpi_moves_mpi.h"
#include "comm/mpi/mpi_posts_mpi.h"
#include "comm/mpi/mpi_sums_mpi.h"
#include "comm/mpi/piece_cursor.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

/// The most bytes of all operands of a small all-reduce. Each rank gets the operands of all others
/// and sums them, which takes one exchange. Otherwise each rank sums a part, which takes two.
constexpr int64_t kSmallSumBytes = int64_t{64} << 10;

/// The transport over MPI. MpiSums takes the sums of larger operands.
///
/// A small all-reduce moves other bytes, but counts them as a large one does.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MpiGroup& group) : group_(group), sums_(group) {}

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    group_.call(mark, {&from, &to}, [&] {
      if (layout.all_contiguous()) {
        gather_in_place(mark, layout, from, to);
      } else {
        gather_by_staging(mark, layout, from, to);
      }
      count_received((layout.elements() - layout.elements(position())) * dtype_size(to.dtype()));
    });
  }

  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    group_.call(mark, {&from, &to}, [&] {
      sums_.reduce_scatter(mark, layout, from, to);
      count_received((ranks() - 1) * to.bytes());
    });
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, {&from, &to}, [&] {
      const auto begin_of = [&](int rank) { return slice_begin(to.elements(), ranks(), rank); };
      if (ranks() * from.bytes() <= kSmallSumBytes) {
        reduce_wholes(mark, from, to);
      } else {
        sums_.reduce_slice(mark, from, to);
        gather_slices(mark, to);
      }
      const int64_t own = begin_of(position() + 1) - begin_of(position());
      count_received(((ranks() - 1) * own + to.elements() - own) * dtype_size(to.dtype()));
    });
  }

  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, {&from, &to}, [&] {
      const std::vector<int64_t> one_each(static_cast<size_t>(ranks()), 1);
      exchange_rows(mark, from, one_each, to, one_each, to.bytes() / ranks());
    });
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received_rows) override {
    group_.call(mark, {&from, &to}, [&] {
      const int64_t row_bytes = to.shape().with_dim(0, 1).elements() * dtype_size(to.dtype());
      exchange_rows(mark, from, sent, to, received_rows, row_bytes);
    });
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    group_.call(mark, {&tensor}, [&] {
      broadcast_bytes(group_, mark, tensor.raw(), tensor.bytes(), root);
      if (root != position()) count_received(tensor.bytes());
    });
  }

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    group_.throw_if_failed();
    return post_by_mpi(group_, message, sent);
  }

  void wait(std::span<TransportPost* const> posts) override {
    if (posts.empty()) return;
    group_.call(posts.front()->mark(), {}, [&] {
      wait_for_posts(group_, posts);
      for (const TransportPost* const post : posts) {
        const bool of_other = post->peer() != position();
        if (!post->sent() && of_other) count_received(post->tensor().bytes());
      }
    });
  }

  void barrier(const Fingerprint& mark) override {
    group_.call(mark, {}, [&] { meet_all(group_, mark); });
  }

  void throw_if_broken() override { group_.throw_if_broken(); }

 private:
  int ranks() const { return group_.size(); }
  int position() const { return group_.position(); }

  static void copy(const std::byte* from, int64_t bytes, std::byte* to) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  /// Sends and receives rows, which follow each other in the tensors by position, and counts them.
  void exchange_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                     const Tensor& to, std::span<const int64_t> received, int64_t row_bytes) {
    group_.exchange(mark, pieces_of_rows<SentMpiPiece>(from, sent, row_bytes),
                    pieces_of_rows<MpiPiece>(to, received, row_bytes));
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank != position()) count_received(received[static_cast<size_t>(rank)] * row_bytes);
    }
  }

  template <typename Piece>
  static std::vector<Piece> pieces_of_rows(const Tensor& tensor, std::span<const int64_t> rows,
                                           int64_t row_bytes) {
    std::vector<Piece> pieces;
    std::byte* memory = tensor.raw();
    for (const int64_t count : rows) {
      pieces.push_back({static_cast<int>(pieces.size()), memory, count * row_bytes});
      memory += count * row_bytes;
    }
    return pieces;
  }

  /// Gathers contiguous pieces, each into its place in the whole.
  void gather_in_place(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                       const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    std::vector<ByteBlock> blocks;
    for (int rank = 0; rank < ranks(); ++rank) {
      const int64_t elements = layout.elements(rank);
      blocks.push_back(
          {elements == 0 ? 0 : layout.piece_begin(rank) * element_bytes, elements * element_bytes});
    }
    copy(from.raw(), from.bytes(), to.raw() + blocks[static_cast<size_t>(position())].offset);
    gather_blocks(group_, mark, to.raw(), blocks);
  }

  /// Gathers pieces that are not contiguous, in rounds that fit into the staging memory.
  void gather_by_staging(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                         const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const int64_t per_round = std::max<int64_t>(1, kStagingBytes / (element_bytes * ranks()));
    const int64_t longest = layout.max_elements();
    const int64_t slot_bytes = std::min(per_round, longest) * element_bytes;
    std::byte* const slots = group_.packed().bytes(slot_bytes * ranks());
    std::vector<PieceCursor> cursors;
    for (int rank = 0; rank < ranks(); ++rank) cursors.emplace_back(layout, rank, element_bytes);
    for (int64_t begin = 0; begin < longest; begin += per_round) {
      const auto count = [&](int rank) {
        return std::clamp<int64_t>(layout.elements(rank) - begin, 0, per_round);
      };
      std::vector<ByteBlock> blocks;
      for (int rank = 0; rank < ranks(); ++rank) {
        blocks.push_back({rank * slot_bytes, count(rank) * element_bytes});
      }
      copy(from.raw() + begin * element_bytes, count(position()) * element_bytes,
           slots + position() * slot_bytes);
      gather_blocks(group_, mark, slots, blocks);
      for (int rank = 0; rank < ranks(); ++rank) {
        cursors[static_cast<size_t>(rank)].scatter(slots + rank * slot_bytes, count(rank),
                                                   to.raw());
      }
    }
  }

  /// Gives each rank the operands of all, and sums them.
  void reduce_wholes(const Fingerprint& mark, const Tensor& from, const Tensor& to) {
    std::byte* const slots = group_.packed().bytes(ranks() * from.bytes());
    std::vector<ByteBlock> blocks;
    std::vector<const std::byte*> addends;
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks.push_back({rank * from.bytes(), from.bytes()});
      addends.push_back(slots + rank * from.bytes());
    }
    copy(from.raw(), from.bytes(), slots + position() * from.bytes());
    gather_blocks(group_, mark, slots, blocks);
    reduce(mark.reduction, to.dtype(), addends, 0, to.elements(), to.raw());
  }

  /// Gathers the slices of an all-reduce. Each rank's own slice is already in `to`.
  void gather_slices(const Fingerprint& mark, const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const auto begin_of = [&](int rank) {
      return slice_begin(to.elements(), ranks(), rank) * element_bytes;
    };
    std::vector<ByteBlock> blocks;
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks.push_back({begin_of(rank), begin_of(rank + 1) - begin_of(rank)});
    }
    gather_blocks(group_, mark, to.raw(), blocks);
  }

  MpiGroup& group_;
  MpiSums sums_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(MpiGroup& group) {
  return std::make_unique<MpiTransport>(group);
}

}  // namespace tessera
