#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

constexpr int kSumThreads = 256;

/// Adds all values to one sum, in one block.
template <typename T>
__global__ void add_all_to_sum(double* sum, const T* value, int64_t count) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) total += static_cast<double>(value[i]);
  total = block_sum(total);
  if (threadIdx.x == 0) *sum += total;
}

/// Adds value[i] to sums[i], with a thread for each element.
template <typename T>
__global__ void add_each_to_sum(double* sums, const T* value, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (i < count) sums[i] += static_cast<double>(value[i]);
}

}  // namespace

template <typename Vendor, typename T>
void running_sum_device(double* sum, int64_t sums, const T* value, int64_t count, Stream& stream) {
  if (sums == 1) {
    launch(add_all_to_sum<T>, {.threads = kSumThreads}, stream, sum, value, count);
  } else {
    launch(add_each_to_sum<T>,
           {.blocks = (count + kSumThreads - 1) / kSumThreads, .threads = kSumThreads}, stream, sum,
           value, count);
  }
}

template void running_sum_device<ThisVendor>(double*, int64_t, const int32_t*, int64_t, Stream&);
template void running_sum_device<ThisVendor>(double*, int64_t, const float*, int64_t, Stream&);
template void running_sum_device<ThisVendor>(double*, int64_t, const double*, int64_t, Stream&);

}  // namespace tessera
