#include "comm/mpi/mpi_transport_mpi.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/mpi/mpi_moves_mpi.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

/// The most bytes of all operands of a small all-reduce. Each rank gets the operands of all others
/// and sums them, which takes one exchange. Otherwise each rank sums a part, which takes two.
constexpr int64_t kSmallSumBytes = int64_t{64} << 10;

/// The transport over MPI.
///
/// A small all-reduce moves other bytes, but counts them as a large one does.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MpiGroup& group) : group_(group) {}

  void make(const TransportCall& call) override {
    group_.call(call.mark, {&call.from, &call.to}, [&] { move(call); });
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

  void throw_if_broken() override { group_.throw_if_broken(); }

 private:
  int ranks() const { return group_.size(); }
  int position() const { return group_.position(); }

  static void copy(const std::byte* from, int64_t bytes, std::byte* to) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  /// Moves the bytes of a call, and counts them.
  void move(const TransportCall& call) {
    const Fingerprint& mark = call.mark;
    const Tensor& from = call.from;
    const Tensor& to = call.to;
    switch (call.moves) {
      case Collective::all_gather:
        if (call.layout->all_contiguous()) {
          gather_in_place(mark, *call.layout, from, to);
        } else {
          gather_by_staging(mark, *call.layout, from, to);
        }
        return count_received(to.bytes() - from.bytes());
      case Collective::reduce_scatter:
        reduce_scatter(group_, mark, *call.layout, from, to);
        return count_received((ranks() - 1) * to.bytes());
      case Collective::all_reduce:
        return all_reduce(mark, from, to);
      case Collective::all_to_all:
      case Collective::all_to_all_rows:
        return exchange_rows(call);
      case Collective::broadcast: {
        const Tensor& tensor = call.root == position() ? from : to;
        broadcast_bytes(group_, mark, tensor.raw(), tensor.bytes(), call.root);
        return count_received(to.bytes());
      }
      case Collective::barrier:
        return meet_all(group_, mark);
      case Collective::message:  // it is posted
        return;
    }
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) {
    if (ranks() * from.bytes() <= kSmallSumBytes) {
      reduce_wholes(mark, from, to);
    } else {
      reduce_slice(group_, mark, from, to);
      gather_slices(mark, to);
    }
    const auto begin_of = [&](int rank) { return slice_begin(to.elements(), ranks(), rank); };
    const int64_t own = begin_of(position() + 1) - begin_of(position());
    count_received(((ranks() - 1) * own + to.elements() - own) * dtype_size(to.dtype()));
  }

  /// Sends and receives rows, which follow each other in the tensors by position, and counts them.
  void exchange_rows(const TransportCall& call) {
    const int64_t row_bytes = call.row_bytes();
    std::vector<MpiPiece> sends, receives;
    std::byte* from = call.from.raw();
    std::byte* to = call.to.raw();
    for (int rank = 0; rank < ranks(); ++rank) {
      const int64_t sent = call.sent[static_cast<size_t>(rank)] * row_bytes;
      const int64_t received = call.received[static_cast<size_t>(rank)] * row_bytes;
      if (rank == position()) {
        copy(from, sent, to);
      } else {
        sends.push_back({rank, from, sent});
        receives.push_back({rank, to, received});
        count_received(received);
      }
      from += sent;
      to += received;
    }
    group_.exchange(call.mark, sends, receives);
  }

  /// Gathers contiguous pieces, each into its place in the whole.
  void gather_in_place(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                       const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    blocks_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks_.push_back(
          {layout.piece_begin(rank) * element_bytes, layout.elements(rank) * element_bytes});
    }
    copy(from.raw(), from.bytes(), to.raw() + blocks_[static_cast<size_t>(position())].offset);
    gather_blocks(group_, mark, from.raw(), to.raw(), blocks_);
  }

  /// Gathers pieces that are not contiguous, in rounds that fit into the staging memory.
  void gather_by_staging(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                         const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const int64_t per_round = std::max<int64_t>(1, kStagingBytes / (element_bytes * ranks()));
    const int64_t longest = layout.max_elements();
    const int64_t slot_bytes = std::min(per_round, longest) * element_bytes;
    std::byte* const slots = group_.packed().bytes(slot_bytes * ranks());
    for (int64_t begin = 0; begin < longest; begin += per_round) {
      const auto count = [&](int rank) {
        return std::clamp<int64_t>(layout.elements(rank) - begin, 0, per_round);
      };
      blocks_.clear();
      for (int rank = 0; rank < ranks(); ++rank) {
        blocks_.push_back({rank * slot_bytes, count(rank) * element_bytes});
      }
      std::byte* const own = from.raw() + begin * element_bytes;
      gather_blocks(group_, mark, own, slots, blocks_);
      for (int rank = 0; rank < ranks(); ++rank) {
        const std::byte* const slot = rank == position() ? own : slots + rank * slot_bytes;
        const auto copy_range = [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
          copy(slot + (piece_offset - begin) * element_bytes, length * element_bytes,
               to.raw() + whole_offset * element_bytes);
        };
        layout.for_each_range(rank, begin, count(rank), copy_range);
      }
    }
  }

  /// Gives each rank the operands of all, and sums them.
  void reduce_wholes(const Fingerprint& mark, const Tensor& from, const Tensor& to) {
    std::byte* const slots = group_.packed().bytes(ranks() * from.bytes());
    blocks_.clear();
    addends_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks_.push_back({rank * from.bytes(), from.bytes()});
      addends_.push_back(rank == position() ? from.raw() : slots + rank * from.bytes());
    }
    gather_blocks(group_, mark, from.raw(), slots, blocks_);
    reduce(mark.reduction, to.dtype(), addends_, 0, to.elements(), to.raw());
  }

  /// Gathers the slices of an all-reduce. Each rank's own slice is already in `to`.
  void gather_slices(const Fingerprint& mark, const Tensor& to) {
    const int64_t element_bytes = dtype_size(to.dtype());
    const auto begin_of = [&](int rank) {
      return slice_begin(to.elements(), ranks(), rank) * element_bytes;
    };
    blocks_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      blocks_.push_back({begin_of(rank), begin_of(rank + 1) - begin_of(rank)});
    }
    gather_blocks(group_, mark, to.raw() + begin_of(position()), to.raw(), blocks_);
  }

  MpiGroup& group_;
  // Of the call that is being made, by position. Members, so that their memory is used again.
  std::vector<ByteBlock> blocks_;
  std::vector<const std::byte*> addends_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(MpiGroup& group) {
  return std::make_unique<MpiTransport>(group);
}

}  // namespace tessera
