#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// One block adds all of them: each thread those of its places, in the order of the rows.
__global__ void add_sums_in_order(DeviceTable<SumsRow> sections, double* sum) {
  double total = 0;
  for (int64_t row = 0; row < sections.count; ++row) {
    const SumsRow of = sections.rows[row];
    // A place counts over all rows, so that threads have as much to do where rows are short.
    const int64_t first = (of.first_block + blockDim.x - threadIdx.x - 1) / blockDim.x;
    for (int64_t i = first * blockDim.x + threadIdx.x - of.first_block; i < of.count;
         i += blockDim.x) {
      total += of.values[i];
    }
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *sum = total;
}

}  // namespace

template <typename Vendor>
void add_in_order_device(const DeviceTable<SumsRow>& sections, double* sum, Stream& stream) {
  launch(add_sums_in_order, {.threads = kMostThreads / 2}, stream, sections, sum);
}

template void add_in_order_device<ThisVendor>(const DeviceTable<SumsRow>&, double*, Stream&);

}  // namespace tessera
