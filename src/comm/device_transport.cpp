#include "comm/device_transport.h"

#include <algorithm>

#include "comm/device_kernels.h"
#include "comm/wire_bytes.h"
#include "tensor/alignment.h"

// The header says how sums are taken. A piece that is contiguous in the whole is sent from there or
// received there. Other pieces go through slots, in rounds over the outer blocks of the layout
// (OuterRounds). All ranks must make the same rounds, so these depend on sizes that all ranks know.

namespace tessera {
namespace {

/// The least bytes of a slot. With many ranks, all slots together may exceed the staging memory.
constexpr int64_t kLeastSlotBytes = int64_t{4} << 10;
/// The most bytes of a small sum, which every rank takes by itself. That needs one gather of
/// addends instead of an exchange of addends and a gather of sums.
constexpr int64_t kSmallSumBytes = int64_t{64} << 10;

/// Returns the most bytes of a slot.
int64_t max_slot_bytes(int ranks, int64_t staging) {
  return std::max(kLeastSlotBytes, staging / ranks / kAlignment * kAlignment);
}

/// Returns the number of elements that a rank has in a round. The largest piece has `longest`.
int64_t round_elements(int64_t longest, int64_t element_bytes, int ranks, int64_t staging) {
  return std::min(longest, max_slot_bytes(ranks, staging) / element_bytes);
}

/// Rounds over the outer blocks of a layout. Each round moves the same blocks of all pieces.
struct OuterRounds {
  int64_t round_blocks = 1;  ///< the number of blocks of one round
  int64_t slot_bytes = 0;
};

OuterRounds outer_rounds(const PieceLayout& layout, int64_t element_bytes, int64_t staging) {
  const int64_t outer = std::max<int64_t>(layout.outer(), 1);
  const int64_t max_block_bytes =
      std::max<int64_t>(layout.max_elements() / outer * element_bytes, 1);
  const int64_t blocks =
      std::clamp<int64_t>(max_slot_bytes(layout.ranks(), staging) / max_block_bytes, 1, outer);
  return {blocks, aligned_bytes(blocks * max_block_bytes)};
}

/// The division of an all-reduce. Each rank sums one slice for all, and the remainder for itself.
struct Slices {
  int64_t slice = 0;      ///< elements of the slice of one rank
  int64_t remainder = 0;  ///< elements after all slices
};

Slices slices_of(int64_t elements, int64_t element_bytes, int ranks) {
  if (elements * element_bytes <= kSmallSumBytes) return {0, elements};
  const int64_t slice = elements / ranks / kAlignment * kAlignment;
  return {slice, elements - slice * ranks};
}

/// Returns whether the library sums and scatters. It divides a whole into equal parts only.
bool library_scatters(Reduction reduction, const PieceLayout& layout) {
  return reduction == Reduction::unordered_sum && layout.is_even();
}

/// Returns the address of an element of a tensor.
std::byte* memory_of(const Tensor& tensor, int64_t element = 0) {
  return static_cast<std::byte*>(tensor.address()) + element * dtype_size(tensor.dtype());
}

}  // namespace

int64_t all_gather_workspace(const PieceLayout& layout, DType dtype, int64_t staging) {
  if (layout.all_contiguous()) return 0;
  return layout.ranks() * outer_rounds(layout, dtype_size(dtype), staging).slot_bytes;
}

int64_t reduce_scatter_workspace(const PieceLayout& layout, DType dtype, Reduction reduction,
                                 int64_t staging) {
  if (library_scatters(reduction, layout)) return 0;
  const int64_t element_bytes = dtype_size(dtype);
  const int ranks = layout.ranks();
  if (layout.all_contiguous()) {
    const int64_t per_round = round_elements(layout.max_elements(), element_bytes, ranks, staging);
    return ranks * aligned_bytes(per_round * element_bytes);
  }
  return 2 * ranks * outer_rounds(layout, element_bytes, staging).slot_bytes;
}

int64_t all_reduce_workspace(int64_t elements, DType dtype, int ranks, Reduction reduction,
                             int64_t staging) {
  if (reduction == Reduction::unordered_sum) return 0;
  const int64_t element_bytes = dtype_size(dtype);
  const Slices slices = slices_of(elements, element_bytes, ranks);
  const int64_t per_round = round_elements(slices.slice, element_bytes, ranks, staging);
  // The most that reduce_whole() gets in calls of fewer elements: a small sum or a remainder.
  const int64_t whole_elements =
      std::min(elements, std::max(kSmallSumBytes / element_bytes, ranks * kAlignment));
  return ranks *
         aligned_bytes(std::max({per_round, slices.remainder, whole_elements}) * element_bytes);
}

void DeviceTransport::exchange(std::string_view name, std::vector<DeviceBuffer> sends,
                               std::vector<DeviceBuffer> receives, Stream& stream) {
  const auto is_empty = [](const DeviceBuffer& buffer) { return buffer.bytes == 0; };
  std::erase_if(sends, is_empty);
  std::erase_if(receives, is_empty);
  if (sends.empty() && receives.empty()) return;
  links_->exchange(name, sends, receives, stream);
  for (const DeviceBuffer& buffer : receives) received_bytes_ += buffer.bytes;
}

/// Sends send(rank) to each other rank, and receives receive(rank): pairs of memory and its bytes.
template <typename Send, typename Receive>
void DeviceTransport::exchange_with_others(std::string_view name, Send&& send, Receive&& receive,
                                           Stream& stream) {
  std::vector<DeviceBuffer> sends;
  std::vector<DeviceBuffer> receives;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == position_) continue;
    const auto [from, from_bytes] = send(rank);
    sends.push_back({rank, from, from_bytes});
    const auto [to, to_bytes] = receive(rank);
    receives.push_back({rank, to, to_bytes});
  }
  exchange(name, std::move(sends), std::move(receives), stream);
}

void DeviceTransport::all_gather(std::string_view name, const PieceLayout& layout,
                                 const Tensor& from, const Tensor& to, const DeviceCall& call) {
  if (layout.elements() == 0) return;
  if (layout.is_even()) {
    links_->all_gather(name, memory_of(from), memory_of(to), from.bytes(), *call.stream);
    received_bytes_ += to.bytes() - from.bytes();
  } else if (layout.all_contiguous()) {
    gather_contiguous(name, layout, from, to, *call.stream);
  } else {
    gather_in_rounds(name, layout, from, to, call);
  }
}

/// Gathers pieces that are contiguous in the whole. They are received there, without a copy.
void DeviceTransport::gather_contiguous(std::string_view name, const PieceLayout& layout,
                                        const Tensor& from, const Tensor& to, Stream& stream) {
  const int64_t element_bytes = dtype_size(to.dtype());
  const auto piece = [&](int rank) { return memory_of(to, layout.piece_begin(rank)); };
  if (piece(position_) != memory_of(from)) {
    stream.copy(piece(position_), memory_of(from), from.bytes());
  }
  exchange_with_others(
      name, [&](int /*rank*/) { return std::pair(memory_of(from), from.bytes()); },
      [&](int rank) { return std::pair(piece(rank), layout.elements(rank) * element_bytes); },
      stream);
}

/// Gathers pieces that are not contiguous. They arrive in slots and are copied into the whole.
void DeviceTransport::gather_in_rounds(std::string_view name, const PieceLayout& layout,
                                       const Tensor& from, const Tensor& to,
                                       const DeviceCall& call) {
  const int64_t element_bytes = dtype_size(to.dtype());
  const OuterRounds rounds = outer_rounds(layout, element_bytes, staging_bytes_);
  const Staging arrived{call.workspace.data(), rounds.slot_bytes};
  for (int64_t begin = 0; begin < layout.outer(); begin += rounds.round_blocks) {
    const OuterBlocks blocks{begin, std::min(layout.outer(), begin + rounds.round_blocks)};
    const auto bytes_of = [&](int rank, int64_t count) {
      return layout.elements(rank) / layout.outer() * count * element_bytes;
    };
    std::byte* const own = memory_of(from) + bytes_of(position_, begin);
    const auto round_bytes = [&](int rank) { return bytes_of(rank, blocks.end - begin); };
    exchange_with_others(
        name, [&](int /*rank*/) { return std::pair(own, round_bytes(position_)); },
        [&](int rank) { return std::pair(arrived.slot(rank), round_bytes(rank)); }, *call.stream);
    for (int rank = 0; rank < ranks_; ++rank) {
      copy_piece(PieceCopy::to_whole, layout, rank, blocks, element_bytes,
                 rank == position_ ? own : arrived.slot(rank), memory_of(to), *call.stream);
    }
  }
}

void DeviceTransport::reduce_scatter(std::string_view name, Reduction reduction,
                                     const PieceLayout& layout, const Tensor& from,
                                     const Tensor& to, const DeviceCall& call) {
  if (layout.elements() == 0) return;
  if (library_scatters(reduction, layout)) {
    links_->reduce_scatter(name, to.dtype(), memory_of(from), memory_of(to), to.elements(),
                           *call.stream);
    received_bytes_ += reduce_scatter_bytes(layout, position_, dtype_size(to.dtype()));
  } else if (layout.all_contiguous()) {
    scatter_contiguous(name, Reduction::sum, layout, from, to, call);
  } else {
    scatter_in_rounds(name, layout, from, to, call);
  }
}

/// Reduces pieces that are contiguous in the whole. They are sent from there, without a copy.
void DeviceTransport::scatter_contiguous(std::string_view name, Reduction reduction,
                                         const PieceLayout& layout, const Tensor& from,
                                         const Tensor& to, const DeviceCall& call) {
  const int64_t element_bytes = dtype_size(to.dtype());
  const int64_t longest = layout.max_elements();
  const int64_t per_round = round_elements(longest, element_bytes, ranks_, staging_bytes_);
  const Staging arrived{call.workspace.data(), aligned_bytes(per_round * element_bytes)};
  for (int64_t begin = 0; begin < longest; begin += per_round) {
    const auto count = [&](int rank) {
      return std::clamp<int64_t>(layout.elements(rank) - begin, 0, per_round);
    };
    const auto addend = [&](int rank) { return memory_of(from, layout.piece_begin(rank) + begin); };
    exchange_with_others(
        name, [&](int rank) { return std::pair(addend(rank), count(rank) * element_bytes); },
        [&](int rank) { return std::pair(arrived.slot(rank), count(position_) * element_bytes); },
        *call.stream);
    sum(reduction, to.dtype(), arrived, {addend(position_), memory_of(to, begin), count(position_)},
        *call.stream);
  }
}

/// Sums pieces that are not contiguous. They are copied to slots before they are sent.
void DeviceTransport::scatter_in_rounds(std::string_view name, const PieceLayout& layout,
                                        const Tensor& from, const Tensor& to,
                                        const DeviceCall& call) {
  const int64_t element_bytes = dtype_size(to.dtype());
  const OuterRounds rounds = outer_rounds(layout, element_bytes, staging_bytes_);
  const Staging packed{call.workspace.data(), rounds.slot_bytes};
  const Staging arrived{packed.slot(ranks_), rounds.slot_bytes};
  for (int64_t begin = 0; begin < layout.outer(); begin += rounds.round_blocks) {
    const OuterBlocks blocks{begin, std::min(layout.outer(), begin + rounds.round_blocks)};
    const auto elements_of = [&](int rank, int64_t count) {
      return layout.elements(rank) / layout.outer() * count;
    };
    const int64_t own_elements = elements_of(position_, blocks.end - begin);
    for (int rank = 0; rank < ranks_; ++rank) {
      copy_piece(PieceCopy::from_whole, layout, rank, blocks, element_bytes, memory_of(from),
                 packed.slot(rank), *call.stream);
    }
    const auto sent = [&](int rank) {
      return elements_of(rank, blocks.end - begin) * element_bytes;
    };
    exchange_with_others(
        name, [&](int rank) { return std::pair(packed.slot(rank), sent(rank)); },
        [&](int rank) { return std::pair(arrived.slot(rank), own_elements * element_bytes); },
        *call.stream);
    sum(Reduction::sum, to.dtype(), arrived,
        {packed.slot(position_), memory_of(to, elements_of(position_, begin)), own_elements},
        *call.stream);
  }
}

void DeviceTransport::all_reduce(std::string_view name, Reduction reduction, const Tensor& from,
                                 const Tensor& to, const DeviceCall& call) {
  const DType dtype = to.dtype();
  const int64_t element_bytes = dtype_size(dtype);
  if (to.elements() == 0) return;
  if (reduction == Reduction::unordered_sum) {
    links_->all_reduce(name, dtype, memory_of(from), memory_of(to), to.elements(), *call.stream);
    const int before = (position_ + ranks_ - 1) % ranks_;  // the rank from which a ring receives
    received_bytes_ += all_reduce_bytes(to.elements(), ranks_, before, element_bytes);
    return;
  }
  const Slices slices = slices_of(to.elements(), element_bytes, ranks_);
  const int64_t slice = slices.slice;
  if (slice > 0) {
    scatter_contiguous(name, reduction, even_pieces(ranks_ * slice, ranks_), from,
                       to.view(position_ * slice, {slice}), call);
    links_->all_gather(name, memory_of(to, position_ * slice), memory_of(to), slice * element_bytes,
                       *call.stream);
    received_bytes_ += (ranks_ - 1) * slice * element_bytes;
  }
  const int64_t first = ranks_ * slice;  // the first element of the remainder
  reduce_whole(name, reduction, dtype,
               {memory_of(from, first), memory_of(to, first), slices.remainder}, call);
}

void DeviceTransport::reduce_whole(std::string_view name, Reduction reduction, DType dtype,
                                   const SumOperands& operands, const DeviceCall& call) {
  if (operands.elements == 0) return;
  const int64_t bytes = operands.elements * dtype_size(dtype);
  const Staging arrived{call.workspace.data(), aligned_bytes(bytes)};
  call.stream->copy(arrived.slot(position_), operands.own_addend, bytes);
  links_->all_gather(name, arrived.slot(position_), arrived.memory, arrived.slot_bytes,
                     *call.stream);
  received_bytes_ += (ranks_ - 1) * arrived.slot_bytes;
  sum(reduction, dtype, arrived, {arrived.slot(position_), operands.sum, operands.elements},
      *call.stream);
}

void DeviceTransport::broadcast(std::string_view name, int root, const Tensor& tensor,
                                const DeviceCall& call) {
  if (tensor.bytes() == 0) return;
  links_->broadcast(name, root, memory_of(tensor), tensor.bytes(), *call.stream);
  if (root != position_) received_bytes_ += tensor.bytes();
}

void DeviceTransport::sum(Reduction reduction, DType dtype, const Staging& staging,
                          const SumOperands& operands, Stream& stream) const {
  ordered_sum({.slots = staging.memory,
               .slot_bytes = staging.slot_bytes,
               .own_addend = operands.own_addend,
               .position = position_,
               .ranks = ranks_,
               .elements = operands.elements,
               .to = operands.sum},
              reduction, dtype, stream);
}

}  // namespace tessera
