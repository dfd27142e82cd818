#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_moves_mpi.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

/// Sums the parts of all ranks in rounds. This rank gets its part, `to`. The part of a rank has
/// `elements_of(rank)` elements. `part_of(rank, begin, elements, staging)` returns this rank's
/// addends for some elements of a part. It may use the memory `staging` for them.
///
/// In a round, this rank sends its addends of the next elements of the other ranks' parts, and
/// receives the addends of its own part. Two rounds are under way at a time, each with one half of
/// the staging memory: while one is summed, the next one is sent.
template <typename ElementsOf, typename PartOf>
void reduce_in_rounds(MpiGroup& group, const Fingerprint& mark, const Tensor& to,
                      ElementsOf&& elements_of, PartOf&& part_of) {
  const int ranks = group.size();
  const int64_t element_bytes = dtype_size(to.dtype());
  // The elements of each rank's part in one round: those of all ranks fit into the memory.
  const int64_t per_round = std::max<int64_t>(1, kStagingBytes / (element_bytes * ranks));
  int64_t longest = 0;
  for (int rank = 0; rank < ranks; ++rank) longest = std::max(longest, elements_of(rank));
  const int64_t half_bytes = std::min(per_round, longest) * element_bytes * ranks;
  std::byte* const packed = group.packed().bytes(2 * half_bytes);
  std::byte* const arrived = group.arrived().bytes(2 * half_bytes);
  struct Round {
    std::vector<MPI_Request> receives, sends;
    std::vector<const std::byte*> addends;
  };
  std::array<Round, 2> rounds;
  for (Round& round_state : rounds) round_state.addends.resize(static_cast<size_t>(ranks));
  const auto count = [&](int rank, int64_t begin) {
    return std::clamp<int64_t>(elements_of(rank) - begin, 0, per_round);
  };
  const auto begin_round = [&](int64_t begin) {
    const int64_t half_index = begin / per_round % 2;
    Round& current = rounds[static_cast<size_t>(half_index)];
    const auto offset = [&](int rank) {
      return half_index * half_bytes + rank * std::min(per_round, longest) * element_bytes;
    };
    const int64_t own = count(group.position(), begin);
    // The sends of the round before the last, from the same memory.
    if (!current.sends.empty()) group.wait(mark, current.sends, half_bytes);
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t elements = count(rank, begin);
      if (elements == 0) continue;
      std::byte* const part = part_of(rank, begin, elements, packed + offset(rank));
      if (rank == group.position()) {
        current.addends[static_cast<size_t>(rank)] = part;
        continue;
      }
      group.send(group.call_hash(), {rank, part, elements * element_bytes}, current.sends);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == group.position() || own == 0) continue;
      group.receive(group.call_hash(), {rank, arrived + offset(rank), own * element_bytes},
                    current.receives);
      current.addends[static_cast<size_t>(rank)] = arrived + offset(rank);
    }
  };
  if (longest > 0) begin_round(0);
  for (int64_t begin = 0; begin < longest; begin += per_round) {
    if (begin + per_round < longest) begin_round(begin + per_round);
    Round& current = rounds[static_cast<size_t>(begin / per_round % 2)];
    group.wait(mark, current.receives, half_bytes);
    const int64_t own = count(group.position(), begin);
    if (own > 0) {
      reduce(mark.reduction, to.dtype(), current.addends, 0, own, to.raw() + begin * element_bytes);
    }
  }
  for (Round& round_state : rounds) group.wait(mark, round_state.sends, half_bytes);
}

}  // namespace

void reduce_scatter(MpiGroup& group, const Fingerprint& mark, const PieceLayout& layout,
                    const Tensor& from, const Tensor& to) {
  const int64_t element_bytes = dtype_size(from.dtype());
  // Only pieces that are not contiguous are copied.
  const auto part_of = [&](int rank, int64_t begin, int64_t elements, std::byte* staging) {
    std::byte* const whole = from.raw();
    if (layout.is_contiguous(rank)) {
      return whole + (layout.piece_begin(rank) + begin) * element_bytes;
    }
    const auto copy = [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
      std::memcpy(staging + (piece_offset - begin) * element_bytes,
                  whole + whole_offset * element_bytes,
                  static_cast<size_t>(length * element_bytes));
    };
    layout.for_each_range(rank, begin, elements, copy);
    return staging;
  };
  reduce_in_rounds(
      group, mark, to, [&](int rank) { return layout.elements(rank); }, part_of);
}

void reduce_slice(MpiGroup& group, const Fingerprint& mark, const Tensor& from, const Tensor& to) {
  const int64_t element_bytes = dtype_size(to.dtype());
  const auto begin_of = [&](int rank) { return slice_begin(to.elements(), group.size(), rank); };
  reduce_in_rounds(
      group, mark,
      to.reshape({to.elements()}).slice(begin_of(group.position()), begin_of(group.position() + 1)),
      [&](int rank) { return begin_of(rank + 1) - begin_of(rank); },
      [&](int rank, int64_t begin, int64_t /*elements*/, std::byte* /*staging*/) {
        return from.raw() + (begin_of(rank) + begin) * element_bytes;
      });
}

}  // namespace tessera
