#include <algorithm>

#include "device/kernel.h"
#include "ops/moe/routing_kernels.h"
#include "ops/moe/token_blocks.h"

namespace tessera {
namespace {

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
/// The threads of a column, which is an expert, share the token blocks in equal parts.
__global__ void scan_token_blocks(TokenCounting counting) {
  __shared__ int sums[kMostThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const int column = thread % kScanColumns, part = thread / kScanColumns;
  const int parts = static_cast<int>(blockDim.x) / kScanColumns;
  const int64_t blocks = token_blocks(counting.tokens);
  const int64_t each = (blocks + parts - 1) / parts;
  const int64_t begin = std::min(part * each, blocks), end = std::min(begin + each, blocks);
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kScanColumns + column;
  const int32_t* const block_counts = counting.block_counts + expert;

  int sum = 0;
  if (expert < counting.experts) {
    for (int64_t b = begin; b < end; ++b) sum += block_counts[b * counting.experts];
  }
  sums[thread] = sum;
  __syncthreads();
  if (expert >= counting.experts) return;
  int before = 0;
  for (int p = 0; p < part; ++p) before += sums[p * kScanColumns + column];
  if (part == parts - 1) counting.counts[expert] = before + sum;

  const int64_t local = expert - counting.first_expert;
  if (local < 0 || local >= counting.local_experts) return;
  for (int64_t b = begin; b < end; ++b) {
    counting.block_offsets[b * counting.local_experts + local] = before;
    before += block_counts[b * counting.experts];
  }
}

/// Writes offsets = the running sum of the local experts' tokens, each limited to the capacity. It
/// runs in one block.
__global__ void write_token_offsets(TokenCounting counting) {
  __shared__ int warp_sums[kMostThreads / kLanes];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes, warp = thread / kLanes;
  const auto local_experts = static_cast<int>(counting.local_experts);
  const auto threads = static_cast<int>(blockDim.x);
  const int each = (local_experts + threads - 1) / threads;
  const int begin = std::min(thread * each, local_experts);
  const int end = std::min(begin + each, local_experts);
  const int32_t* const counts = counting.counts + counting.first_expert;

  int sum = 0;
  for (int e = begin; e < end; ++e) sum += std::min(counts[e], counting.capacity);
  int running = sum;  // over the warp's lanes up to this one
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

}  // namespace

template <typename Vendor>
void token_counts_device(const TokenCounting& counting, Stream& stream) {
  constexpr int64_t kMostCounting = 256;  // threads that share a token block
  constexpr int64_t kMostParts = 16;
  constexpr int kOffsetThreads = 128;
  const int64_t blocks = token_blocks(counting.tokens);
  launch(count_token_blocks,
         {.blocks = blocks,
          .threads =
              static_cast<int>(std::clamp(kTokenBlock * counting.k, kTokenBlock, kMostCounting)),
          .shared_bytes = static_cast<int>(counting.experts * sizeof(int))},
         stream, counting);
  const int64_t parts = std::clamp<int64_t>((blocks + 1) / 2 * 2, 2, kMostParts);
  launch(scan_token_blocks,
         {.blocks = (counting.experts + kScanColumns - 1) / kScanColumns,
          .threads = static_cast<int>(parts * kScanColumns)},
         stream, counting);
  launch(write_token_offsets, {.threads = kOffsetThreads}, stream, counting);
}

template void token_counts_device<ThisVendor>(const TokenCounting&, Stream&);

}  // namespace tessera
