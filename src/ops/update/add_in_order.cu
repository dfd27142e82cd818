#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

constexpr int kAddingThreads = kMostThreads / 2;

/// Adds up SumsRow::kPerFirstStageBlock sums per block; each thread takes every kAddingThreads-th.
/// Indices of sums run over all rows, so that all threads have work even if rows are short.
__global__ void add_block_sums(DeviceTable<SumsRow> sections, double* sums) {
  const int64_t begin = blockIdx.x * SumsRow::kPerFirstStageBlock;
  const int64_t end = begin + SumsRow::kPerFirstStageBlock;
  double total = 0;
  for (int64_t row = 0; row < sections.count; ++row) {
    const SumsRow section = sections.rows[row];
    const int64_t first = section.first_block > begin ? section.first_block : begin;
    const int64_t row_end = section.first_block + section.count;
    const int64_t last = row_end < end ? row_end : end;
    const int64_t turn = (first + kAddingThreads - 1 - threadIdx.x) / kAddingThreads;
    for (int64_t index = turn * kAddingThreads + threadIdx.x; index < last;
         index += kAddingThreads) {
      total += section.values[index - section.first_block];
    }
  }
  total = block_sum(total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

/// Adds up the sums of all blocks, in one block.
__global__ void add_partial_sums(int64_t count, const double* partial, double* sum) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kAddingThreads) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *sum = total;
}

}  // namespace

template <typename Vendor>
void add_in_order_device(const DeviceTable<SumsRow>& sections, double* partial, double* sum,
                         Stream& stream) {
  const int64_t blocks = SumsRow::first_stage_blocks(sections.blocks);
  if (blocks <= 1) {
    launch(add_block_sums, {.threads = kAddingThreads}, stream, sections, sum);
    return;
  }
  launch(add_block_sums, {.blocks = blocks, .threads = kAddingThreads}, stream, sections,
         partial);
  launch(add_partial_sums, {.threads = kAddingThreads}, stream, blocks, partial, sum);
}

template void add_in_order_device<ThisVendor>(const DeviceTable<SumsRow>&, double*, double*,
                                              Stream&);

}  // namespace tessera
