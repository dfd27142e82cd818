#include "device/kernel.h"
#include "device/packs.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

constexpr int kProbabilityThreads = 128;

/// Writes parts[layer, block, e] = Σ_t p_te over the block's tokens. A thread handles a pack, which
/// is `size` neighbouring experts.
template <int size>
__global__ void sum_probabilities(BalanceLayers layers, float* parts) {
  const int64_t row_packs = layers.experts / size;
  const int64_t blocks = gridDim.x;
  const int64_t block_tokens = (layers.tokens + blocks - 1) / blocks;
  const int64_t begin = std::min(blockIdx.x * block_tokens, layers.tokens);
  const int64_t end = std::min(begin + block_tokens, layers.tokens);
  const float* const probabilities = layers.probabilities[blockIdx.y];
  const int64_t row = blockIdx.y * blocks + blockIdx.x;
  for (int64_t p = threadIdx.x; p < row_packs; p += blockDim.x) {
    Pack<float, size> sum{};
    for (int64_t t = begin; t < end; ++t) {
      const Pack<float, size> pack = load_pack<size>(probabilities, t * row_packs + p);
      for (int i = 0; i < size; ++i) sum.values[i] += pack.values[i];
    }
    store_pack(parts, row * row_packs + p, sum);
  }
}

/// Writes sums_e = earlier_e + Σ parts[layer, block, e] over layers and blocks, with one thread per
/// expert.
__global__ void add_probability_parts(const double* earlier, const float* parts, int64_t count,
                                      int64_t experts, double* sums) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= experts) return;
  double sum = earlier == nullptr ? 0 : earlier[e];
  for (int64_t part = 0; part < count; ++part) sum += parts[part * experts + e];
  sums[e] = sum;
}

/// Writes the gradient of the probabilities, whose rows are all the same, with one thread per pack.
template <int size>
__global__ void repeat_sums_gradient(int64_t packs, int row_packs, const double* sums_gradient,
                                     float* probabilities_gradient) {
  const int64_t pack_index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack_index >= packs) return;
  const double* const column = sums_gradient + pack_index % row_packs * size;
  Pack<float, size> pack;
  for (int i = 0; i < size; ++i) pack.values[i] = static_cast<float>(column[i]);
  store_pack(probabilities_gradient, pack_index, pack);
}

/// Returns the number of blocks of threads for `items` items.
int64_t probability_grid(int64_t items) {
  return (items + kProbabilityThreads - 1) / kProbabilityThreads;
}

}  // namespace

template <typename Vendor>
void probability_sums_device(const BalanceLayers& layers, const double* earlier, float* parts,
                             double* sums, Stream& stream) {
  const int64_t blocks = probability_blocks(layers.count, layers.tokens);
  with_pack_size<kPackSize<float>>(layers.experts, [&](auto size) {
    const auto packs =
        static_cast<int>(std::min<int64_t>(layers.experts / size, kProbabilityThreads));
    launch(sum_probabilities<size>,
           {.blocks = blocks,
            .threads = (packs + kLanes - 1) / kLanes * kLanes,
            .blocks_y = layers.count},
           stream, layers, parts);
  });
  launch(add_probability_parts,
         {.blocks = probability_grid(layers.experts), .threads = kProbabilityThreads}, stream,
         earlier, parts, blocks * layers.count, layers.experts, sums);
}

template <typename Vendor>
void probability_sums_gradient_device(int64_t tokens, int64_t experts,
                                      const double* sums_gradient, float* probabilities_gradient,
                                      Stream& stream) {
  if (tokens == 0) return;
  with_pack_size<kPackSize<float>>(experts, [&](auto size) {
    const int64_t row_packs = experts / size;
    launch(repeat_sums_gradient<size>,
           {.blocks = probability_grid(tokens * row_packs), .threads = kProbabilityThreads}, stream,
           tokens * row_packs, static_cast<int>(row_packs), sums_gradient, probabilities_gradient);
  });
}

template void probability_sums_device<ThisVendor>(const BalanceLayers&, const double*, float*,
                                                  double*, Stream&);
template void probability_sums_gradient_device<ThisVendor>(int64_t, int64_t, const double*, float*,
                                                           Stream&);

}  // namespace tessera
