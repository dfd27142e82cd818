#include <algorithm>
#include <bit>

#include "base/round_up.h"
#include "device/kernel.h"
#include "ops/moe/routing_kernels.h"
#include "ops/moe/token_blocks.h"

namespace tessera {
namespace {

/// Returns the mask of the warp's lanes that pass the same value, which has `bits` bits. All lanes
/// must call it.
__device__ inline uint64_t lanes_with(unsigned value, int bits) {
  uint64_t same = ~uint64_t{0} >> (64 - kLanes);
  for (int bit = 0; bit < bits; ++bit) {
    const bool is_set = (value >> bit & 1) != 0;
    const uint64_t set = ballot(is_set);
    same &= is_set ? set : ~set;
  }
  return same;
}

/// Assigns rows to the choices of one token block per block of threads. The warps take consecutive
/// parts of the choices. Each expert's next row is known for each warp, [warps, local experts] in
/// shared memory. It comes from the warps' counts, and then advances chunk by chunk, with one
/// choice per lane.
__global__ void number_token_blocks(TokenNumbering numbering, int bits) {
  int* const rows = dynamic_shared<int>();
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int lane = thread % kLanes, warp = thread / kLanes, warps = threads / kLanes;
  const auto local_experts = static_cast<int>(numbering.local_experts);
  const auto k = static_cast<int>(numbering.k);
  const BlockChoices choices(blockIdx.x, numbering.tokens, numbering.k);
  const auto count = static_cast<int>(choices.end - choices.begin);
  const int32_t* const indices = numbering.indices + choices.begin;
  /// Returns the local expert of a choice, or local_experts if its expert is not local.
  const auto expert_of = [&](int choice) {
    const int64_t expert = indices[choice] - numbering.first_expert;
    return expert >= 0 && expert < local_experts ? static_cast<int>(expert) : local_experts;
  };

  for (int i = thread; i < warps * local_experts; i += threads) rows[i] = 0;
  __syncthreads();
  const auto each = static_cast<int>(round_up((count + warps - 1) / warps, kLanes));
  const int begin = std::min(warp * each, count), end = std::min(begin + each, count);
  int* const next_rows = rows + warp * local_experts;
  for (int choice = begin + lane; choice < end; choice += kLanes) {
    const int expert = expert_of(choice);
    if (expert < local_experts) atomicAdd(&next_rows[expert], 1);
  }
  __syncthreads();
  for (int e = thread; e < local_experts; e += threads) {
    int row = numbering.offsets[e] +
              numbering.block_offsets[blockIdx.x * numbering.local_experts + e];
    for (int w = 0; w < warps; ++w) {
      const int taken = rows[w * local_experts + e];
      rows[w * local_experts + e] = row;
      row += taken;
    }
  }
  __syncthreads();

  const uint64_t earlier_lanes = (uint64_t{1} << lane) - 1;
  for (int chunk = begin; chunk < end; chunk += kLanes) {
    const int choice = chunk + lane;
    const int expert = choice < end ? expert_of(choice) : local_experts;
    const bool is_local = expert < local_experts;
    const uint64_t same = lanes_with(static_cast<unsigned>(expert), bits);
    const int rank = std::popcount(same & earlier_lanes);
    const int first_row = is_local ? next_rows[expert] : 0;
    wait_for_warp();  // all lanes have read next_rows before the first of an expert advances it
    if (is_local && rank == 0) next_rows[expert] = first_row + std::popcount(same);
    wait_for_warp();
    if (choice >= end) continue;
    const int row = first_row + rank;
    const bool is_kept = is_local && row < numbering.offsets[expert + 1];
    numbering.output_indices[choices.begin + choice] = is_kept ? row : -1;
    if (is_kept) {
      numbering.input_indices[row] = static_cast<int32_t>(blockIdx.x * kTokenBlock) + choice / k;
    }
  }
  // Rows past the last offset hold no token. No other thread writes them.
  const int64_t last = numbering.offsets[local_experts];
  const int64_t end_row = std::min<int64_t>(choices.end, numbering.rows);
  for (int64_t row = choices.begin + thread; row < end_row; row += threads) {
    if (row >= last) numbering.input_indices[row] = -1;
  }
}

}  // namespace

template <typename Vendor>
void token_indices_device(const TokenNumbering& numbering, Stream& stream) {
  constexpr int64_t kMostSharedBytes = 32 * 1024;
  constexpr int64_t kMostWarps = 512 / kLanes;
  const int64_t warp_bytes = numbering.local_experts * static_cast<int64_t>(sizeof(int));
  const int64_t chunks = kTokenBlock * numbering.k / kLanes;
  const int64_t warps =
      std::max<int64_t>(1, std::min({chunks, kMostWarps, kMostSharedBytes / warp_bytes}));
  const int bits = std::bit_width(static_cast<unsigned>(numbering.local_experts));
  launch(number_token_blocks,
         {.blocks = token_blocks(numbering.tokens),
          .threads = static_cast<int>(warps * kLanes),
          .shared_bytes = static_cast<int>(warps * warp_bytes)},
         stream, numbering, bits);
}

template void token_indices_device<ThisVendor>(const TokenNumbering&, Stream&);

}  // namespace tessera
