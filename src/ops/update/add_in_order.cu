#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

constexpr int kAddingThreads = kMostThreads / 2;

/// Each block adds up those of some places, each thread every kAddingThreads-th of them. A place
/// counts over all rows, so that threads have as much to do where rows are short.
__global__ void add_sums_of_places(DeviceTable<SumsRow> sections, double* sums) {
  const int64_t begin = blockIdx.x * SumsRow::kOfFirstStage;
  const int64_t end = begin + SumsRow::kOfFirstStage;
  double total = 0;
  for (int64_t row = 0; row < sections.count; ++row) {
    const SumsRow of = sections.rows[row];
    const int64_t first = of.first_block > begin ? of.first_block : begin;
    const int64_t row_end = of.first_block + of.count;
    const int64_t last = row_end < end ? row_end : end;
    const int64_t turn = (first + kAddingThreads - 1 - threadIdx.x) / kAddingThreads;
    for (int64_t place = turn * kAddingThreads + threadIdx.x; place < last;
         place += kAddingThreads) {
      total += of.values[place - of.first_block];
    }
  }
  total = block_sum(total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

/// One block adds up what the others have.
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
    launch(add_sums_of_places, {.threads = kAddingThreads}, stream, sections, sum);
    return;
  }
  launch(add_sums_of_places, {.blocks = blocks, .threads = kAddingThreads}, stream, sections,
         partial);
  launch(add_partial_sums, {.threads = kAddingThreads}, stream, blocks, partial, sum);
}

template void add_in_order_device<ThisVendor>(const DeviceTable<SumsRow>&, double*, double*,
                                              Stream&);

}  // namespace tessera
