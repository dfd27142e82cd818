#include "ops/router/router_kernels.h"
#include "ops/router/router_rows.h"

namespace tessera {
namespace {

/// choices[e] = factor · how often expert e was chosen, over all layers, in shared memory.
__device__ void count_choices(const BalanceLayers& layers, float factor, float* choices) {
  for (int e = static_cast<int>(threadIdx.x); e < layers.experts;
       e += static_cast<int>(blockDim.x)) {
    int64_t sum = 0;
    for (int layer = 0; layer < layers.count; ++layer) sum += layers.counts[layer][e];
    choices[e] = factor * static_cast<float>(sum);
  }
  __syncthreads();
}

/// Calls body(at, column) for the packs of a matrix [tokens, experts] that this thread handles, with
/// the pack's place in its row.
template <int size, typename Body>
__device__ void for_my_packs(const BalanceLayers& layers, Body&& body) {
  const int row_packs = static_cast<int>(layers.experts) / size;
  const int64_t packs = layers.tokens * row_packs;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int step = static_cast<int>(stride % row_packs);
  int column = static_cast<int>(at % row_packs);
  for (; at < packs; at += stride) {
    body(at, column);
    column += step;
    if (column >= row_packs) column -= row_packs;
  }
}

/// parts[layer, block] = Σ choices_e p_te over the probabilities that the block handles.
template <int size>
__global__ void balance_parts(BalanceLayers layers, float* parts) {
  float* const choices = dynamic_shared<float>();
  count_choices(layers, 1.0f, choices);
  const float* const probabilities = layers.probabilities[blockIdx.y];
  float total = 0;
  for_my_packs<size>(layers, [&](int64_t at, int column) {
    const Pack<float, size> pack = load_pack<size>(probabilities, at);
    const Pack<float, size> weights = load_pack<size>(choices, column);
    for (int i = 0; i < size; ++i) total += weights.values[i] * pack.values[i];
  });
  total = block_sum(total);
  if (threadIdx.x == 0) parts[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = total;
}

/// All rows of the gradient are the same.
template <int size>
__global__ void balance_gradient_rows(BalanceLayers layers, float factor, const float* of_loss,
                                      float* of_probabilities) {
  float* const row = dynamic_shared<float>();
  count_choices(layers, factor * of_loss[0], row);
  for_my_packs<size>(layers, [&](int64_t at, int column) {
    store_pack(of_probabilities, at, load_pack<size>(row, column));
  });
}

/// Calls body(pack size, grid of the layers) with a compile-time size.
template <typename Body>
void for_balance(const BalanceLayers& layers, Body&& body) {
  const Grid grid{.blocks = balance_blocks(layers.count, layers.tokens, layers.experts),
                  .threads = kRouterThreads,
                  .blocks_y = layers.count,
                  .shared_bytes = static_cast<int>(layers.experts * sizeof(float))};
  with_pack_size<kPackSize<float>>(layers.experts, [&](auto size) { body(size, grid); });
}

}  // namespace

template <typename Vendor>
void load_balance_loss_device(const BalanceLayers& layers, double factor, float* parts, float* loss,
                              Stream& stream) {
  int64_t blocks = 0;
  for_balance(layers, [&](auto size, const Grid& grid) {
    blocks = grid.blocks * grid.blocks_y;
    launch(balance_parts<size>, grid, stream, layers, parts);
  });
  router_loss_sum_device<Vendor>(parts, blocks, factor, loss, stream);
}

template <typename Vendor>
void load_balance_gradient_device(const BalanceLayers& layers, double factor, const float* of_loss,
                                  float* of_probabilities, Stream& stream) {
  for_balance(layers, [&](auto size, Grid grid) {
    grid.blocks = balance_blocks(1, layers.tokens, layers.experts);
    grid.blocks_y = 1;
    launch(balance_gradient_rows<size>, grid, stream, layers, static_cast<float>(factor), of_loss,
           of_probabilities);
  });
}

template void load_balance_loss_device<ThisVendor>(const BalanceLayers&, double, float*, float*,
                                                   Stream&);
template void load_balance_gradient_device<ThisVendor>(const BalanceLayers&, double, const float*,
                                                       float*, Stream&);

}  // namespace tessera
