#include "device/kernel.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

constexpr int kProbabilityThreads = 128;

/// parts[layer, block, e] = the sum of p_te over the block's tokens.
__global__ void sum_probabilities(BalanceLayers layers, float* parts) {
  const int64_t blocks = gridDim.x;
  const int64_t each = (layers.tokens + blocks - 1) / blocks;
  const int64_t begin = std::min(blockIdx.x * each, layers.tokens);
  const int64_t end = std::min(begin + each, layers.tokens);
  const float* const probabilities = layers.probabilities[blockIdx.y];
  float* const sums = parts + (blockIdx.y * blocks + blockIdx.x) * layers.experts;
  for (int64_t e = threadIdx.x; e < layers.experts; e += blockDim.x) {
    float sum = 0;
    for (int64_t t = begin; t < end; ++t) sum += probabilities[t * layers.experts + e];
    sums[e] = sum;
  }
}

/// A thread for each expert.
__global__ void add_probability_parts(const float* parts, int64_t count, int64_t experts,
                                      double* sums) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= experts) return;
  double sum = 0;
  for (int64_t part = 0; part < count; ++part) sum += parts[part * experts + e];
  sums[e] = sum;
}

/// A block for each token.
__global__ void repeat_of_sums(int64_t experts, const double* of_sums, float* of_probabilities) {
  float* const row = of_probabilities + static_cast<int64_t>(blockIdx.x) * experts;
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    row[e] = static_cast<float>(of_sums[e]);
  }
}

}  // namespace

template <typename Vendor>
void probability_sums_device(const BalanceLayers& layers, float* parts, double* sums,
                             Stream& stream) {
  const int64_t blocks = probability_blocks(layers.count, layers.tokens);
  launch(sum_probabilities, {.blocks = blocks, .threads = kProbabilityThreads, .blocks_y = layers.count},
         stream, layers, parts);
  launch(add_probability_parts,
         {.blocks = (layers.experts + kProbabilityThreads - 1) / kProbabilityThreads, .threads = kProbabilityThreads},
         stream, parts, blocks * layers.count, layers.experts, sums);
}

template <typename Vendor>
void probability_sums_gradient_device(int64_t tokens, int64_t experts, const double* of_sums,
                                      float* of_probabilities, Stream& stream) {
  if (tokens == 0) return;
  launch(repeat_of_sums, {.blocks = tokens, .threads = kProbabilityThreads}, stream, experts, of_sums,
         of_probabilities);
}

template void probability_sums_device<ThisVendor>(const BalanceLayers&, float*, double*, Stream&);
template void probability_sums_gradient_device<ThisVendor>(int64_t, int64_t, const double*, float*,
                                                           Stream&);

}  // namespace tessera
