#include <algorithm>
#include <bit>

#include "base/round_up.h"
#include "device/kernel.h"
#include "ops/moe/routing_kernels.h"

namespace tessera {
namespace {

// A counting sort: token_counts() launches the first three kernels, token_indices() the last one.

constexpr int kScanColumns = 32;  // experts that a block of scan_token_blocks() handles

/// Writes block_counts[b, e] = the number of choices of expert e in token block b.
__global__ void count_token_blocks(TokenCounting counting) {
  int* const counts = dynamic_shared<int>();
  const auto experts = static_cast<int>(counting.experts);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  for (int e = thread; e < experts; e += threads) counts[e] = 0;
  __syncthreads();
  const BlockChoices choices(blockIdx.x, counting.tokens, counting.k);
  for (int64_t i = choices.begin + thread; i < choices.end; i += threads) {
    const int expert = counting.indices[i];
    if (expert >= 0 && expert < experts) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  int32_t* const result = counting.block_counts + blockIdx.x * counting.experts;
  for (int e = thread; e < experts; e += threads) result[e] = counts[e];
}

/// Writes, for each expert e,
///   block_offsets[b, e] = Σ_{a < b} block_counts[a, e], counts[e] = Σ_b block_counts[b, e]
/// A block of threads handles kScanColumns experts. The threads of an expert share the token blocks
/// in equal parts. Each adds up its part, and starts block_offsets from the sum of earlier parts.
__global__ void scan_token_blocks(TokenCounting counting) {
  __shared__ int sums[kMostThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const int column = thread % kScanColumns, part = thread / kScanColumns;
  const int parts = static_cast<int>(blockDim.x) / kScanColumns;
  const int64_t blocks = token_blocks(counting.tokens);
  const int64_t part_blocks = (blocks + parts - 1) / parts;
  const int64_t begin = std::min(part * part_blocks, blocks);
  const int64_t end = std::min(begin + part_blocks, blocks);
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kScanColumns + column;
  const int32_t* const block_counts = counting.block_counts + expert;

  int sum = 0;
  if (expert < counting.experts) {
    for (int64_t b = begin; b < end; ++b) sum += block_counts[b * counting.experts];
  }
  sums[thread] = sum;
  __syncthreads();
  if (expert >= counting.experts) return;
  int earlier_choices = 0;
  for (int p = 0; p < part; ++p) earlier_choices += sums[p * kScanColumns + column];
  if (part == parts - 1) counting.counts[expert] = earlier_choices + sum;

  const int64_t local = expert - counting.first_expert;
  if (local < 0 || local >= counting.local_experts) return;
  for (int64_t b = begin; b < end; ++b) {
    counting.block_offsets[b * counting.local_experts + local] = earlier_choices;
    earlier_choices += block_counts[b * counting.experts];
  }
}

/// Writes offsets[e + 1] = Σ_{a <= e} min(counts of local expert a, capacity), in one block. Each
/// thread handles consecutive experts. A thread gets the sums of earlier threads in its warp by
/// shuffles, and those of earlier warps from shared memory.
__global__ void write_token_offsets(TokenCounting counting) {
  __shared__ int warp_sums[kMostThreads / kLanes];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes, warp = thread / kLanes;
  const auto local_experts = static_cast<int>(counting.local_experts);
  const auto threads = static_cast<int>(blockDim.x);
  const int thread_experts = (local_experts + threads - 1) / threads;
  const int begin = std::min(thread * thread_experts, local_experts);
  const int end = std::min(begin + thread_experts, local_experts);
  const int32_t* const counts = counting.counts + counting.first_expert;

  int sum = 0;
  for (int e = begin; e < end; ++e) sum += std::min(counts[e], counting.capacity);
  int running = sum;  // the sum over the warp's lanes up to this one
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const int earlier = shuffle(running, std::max(lane - distance, 0));
    if (lane >= distance) running += earlier;
  }
  if (lane == kLanes - 1) warp_sums[warp] = running;
  __syncthreads();
  int row = running - sum;
  for (int w = 0; w < warp; ++w) row += warp_sums[w];
  if (thread == 0) counting.offsets[0] = 0;
  for (int e = begin; e < end; ++e) {
    row += std::min(counts[e], counting.capacity);
    counting.offsets[e + 1] = row;
  }
}

/// Returns the mask of the warp's lanes that pass the same value of `bits` bits. All lanes call it.
__device__ inline uint64_t lanes_with(unsigned value, int bits) {
  uint64_t matching_lanes = ~uint64_t{0} >> (64 - kLanes);
  for (int bit = 0; bit < bits; ++bit) {
    const bool is_set = (value >> bit & 1) != 0;
    const uint64_t set = ballot(is_set);
    matching_lanes &= is_set ? set : ~set;
  }
  return matching_lanes;
}

/// Assigns rows to the choices of one token block per block of threads, in the order of the tokens.
/// Each warp takes a consecutive part of the choices.
///   1. Each warp counts the choices of each expert in its part, in shared memory [warps, experts].
///   2. These counts become the row of each expert's first choice in each part.
///   3. Each warp walks through its part, one choice per lane at a time. Lanes that chose the same
///      expert get consecutive rows, and the expert's next row advances by their number.
/// Choices of experts that are not local count as choices of expert local_experts, which gets no
/// rows. `bits` is the number of bits of local_experts, the largest index.
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
  const auto warp_choices = static_cast<int>(round_up((count + warps - 1) / warps, kLanes));
  const int begin = std::min(warp * warp_choices, count);
  const int end = std::min(begin + warp_choices, count);
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
      const int choices_of_warp = rows[w * local_experts + e];
      rows[w * local_experts + e] = row;
      row += choices_of_warp;
    }
  }
  __syncthreads();

  const uint64_t earlier_lanes = (uint64_t{1} << lane) - 1;
  for (int chunk = begin; chunk < end; chunk += kLanes) {
    const int choice = chunk + lane;
    const int expert = choice < end ? expert_of(choice) : local_experts;
    const bool is_local = expert < local_experts;
    const uint64_t matching_lanes = lanes_with(static_cast<unsigned>(expert), bits);
    const int rank = std::popcount(matching_lanes & earlier_lanes);
    const int first_row = is_local ? next_rows[expert] : 0;
    wait_for_warp();  // all lanes have read next_rows before the first of an expert advances it
    if (is_local && rank == 0) next_rows[expert] = first_row + std::popcount(matching_lanes);
    wait_for_warp();
    if (choice >= end) continue;
    const int row = first_row + rank;
    const bool is_kept = is_local && row < numbering.offsets[expert + 1];
    numbering.output_indices[choices.begin + choice] = is_kept ? row : -1;
    if (is_kept) {
      numbering.input_indices[row] = static_cast<int32_t>(blockIdx.x * kTokenBlock) + choice / k;
    }
  }
  // Rows past the last offset hold no token. Each of them is written by one thread alone.
  const int64_t rows_in_use = numbering.offsets[local_experts];
  const int64_t end_row = std::min<int64_t>(choices.end, numbering.rows);
  for (int64_t row = choices.begin + thread; row < end_row; row += threads) {
    if (row >= rows_in_use) numbering.input_indices[row] = -1;
  }
}

}  // namespace

template <typename Vendor>
void token_counts_device(const TokenCounting& counting, Stream& stream) {
  constexpr int64_t kCountingThreads = 256;  // at most, for a token block
  constexpr int64_t kMostParts = 16;
  constexpr int kOffsetThreads = 128;
  const int64_t blocks = token_blocks(counting.tokens);
  launch(count_token_blocks,
         {.blocks = blocks,
          .threads =
              static_cast<int>(std::clamp(kTokenBlock * counting.k, kTokenBlock, kCountingThreads)),
          .shared_bytes = static_cast<int>(counting.experts * sizeof(int))},
         stream, counting);
  // The number of parts is even, because a part has 32 threads and a warp may have 64 lanes.
  const int64_t parts = std::clamp<int64_t>((blocks + 1) / 2 * 2, 2, kMostParts);
  launch(scan_token_blocks,
         {.blocks = (counting.experts + kScanColumns - 1) / kScanColumns,
          .threads = static_cast<int>(parts * kScanColumns)},
         stream, counting);
  launch(write_token_offsets, {.threads = kOffsetThreads}, stream, counting);
}

template void token_counts_device<ThisVendor>(const TokenCounting&, Stream&);

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
