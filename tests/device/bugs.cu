#include "device/bugs.h"

#include "device/kernel.h"

namespace tessera {
namespace {

template <Bug bug>
__global__ void sum_kernel(const float* x, int n, float* out) {
  __shared__ float parts[kMostThreads / kLanes];
  const int thread = static_cast<int>(threadIdx.x);
  float value = thread < n ? x[thread] : 0.0f;
  if (bug == Bug::read_past_the_end && thread == 3) value += x[n];
  value = warp_sum(value);
  if (thread % kLanes == 0) parts[thread / kLanes] = value;
  if (bug != Bug::missing_barrier) __syncthreads();
  if (bug == Bug::barrier_in_a_branch && thread < kLanes) __syncthreads();
  if (bug == Bug::missing_lane) {
    if (thread == 5) return;
    value = warp_sum(value);
  }
  float total = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kLanes; ++warp) total += parts[warp];
  if (bug == Bug::one_element_for_all) {
    out[0] = total * static_cast<float>(thread);
  } else {
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
  }
  __syncthreads();
  // So that what an earlier block left is no right answer.
  if (thread % kLanes == 0) parts[thread / kLanes] = 0;
}

}  // namespace

template <typename Vendor>
void sum_with_bug(Bug bug, const float* x, int n, float* out, Stream& stream) {
  const auto run = [&](auto kernel) {
    launch(kernel, {.blocks = 2, .threads = 256}, stream, x, n, out);
  };
  switch (bug) {
    case Bug::none:
      return run(sum_kernel<Bug::none>);
    case Bug::missing_barrier:
      return run(sum_kernel<Bug::missing_barrier>);
    case Bug::barrier_in_a_branch:
      return run(sum_kernel<Bug::barrier_in_a_branch>);
    case Bug::missing_lane:
      return run(sum_kernel<Bug::missing_lane>);
    case Bug::read_past_the_end:
      return run(sum_kernel<Bug::read_past_the_end>);
    case Bug::one_element_for_all:
      return run(sum_kernel<Bug::one_element_for_all>);
  }
}

template void sum_with_bug<ThisVendor>(Bug, const float*, int, float*, Stream&);

}  // namespace tessera
