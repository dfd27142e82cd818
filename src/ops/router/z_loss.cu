#include "ops/router/router_kernels.h"
#include "ops/router/router_rows.h"

namespace tessera {
namespace {

/// Returns z = log Σ_e exp logit_e = m + log Σ_e exp(logit_e − m), where m is the largest logit.
__device__ inline float log_sum_exp(const ExponentialSum& total) {
  return total.maximum + logf(total.sum);
}

/// Writes parts[block] = Σ z_t² over the block's tokens. A block handles a group of tokens at a
/// time. If there are fewer blocks than groups, it handles several groups one after the other.
template <int size>
__global__ void z_loss_parts(RouterRows rows, const float* logits, float* parts) {
  float total = 0;
  const int64_t group = rows_at_once(rows);
  for (int64_t token = blockIdx.x * group; token < rows.tokens; token += gridDim.x * group) {
    const RouterRow<size> row(rows, token);
    const float z = log_sum_exp(exponential_sum(row, logits + row.token * rows.experts));
    if (row.exists && row.member == 0) total += z * z;
  }
  total = block_sum(total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

/// Writes logits_gradient_te = factor · loss_gradient · z_t · exp(logits_te - z_t), where the
/// exponential is softmax(logits_t)_e.
template <int size>
__global__ void z_loss_gradient_rows(RouterRows rows, float factor, const float* logits,
                                     const float* loss_gradient, float* logits_gradient) {
  const RouterRow<size> row(rows, blockIdx.x * rows_at_once(rows));
  const int64_t start = row.token * rows.experts;
  const float z = log_sum_exp(exponential_sum(row, logits + start));
  const float z_gradient = factor * loss_gradient[0] * z;
  row.for_each_pack([&](int p) {
    Pack<float, size> pack = load_pack<size>(logits + start, p);
    for (int i = 0; i < size; ++i) pack.values[i] = z_gradient * expf(pack.values[i] - z);
    store_pack(logits_gradient + start, p, pack);
  });
}

/// Writes loss = factor · the sum of the parts, in one block.
__global__ void add_loss_parts(const float* parts, int64_t count, float factor, float* loss) {
  float total = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = factor * total;
}

}  // namespace

template <typename Vendor>
void router_z_loss_device(int64_t tokens, int64_t experts, double coefficient, const float* logits,
                          float* parts, float* loss, Stream& stream) {
  constexpr int64_t kMostBlocks = 1024;  // few enough for one block to add their parts
  constexpr int kSumThreads = 256;
  int64_t blocks = 0;
  for_router_rows(tokens, experts, [&](auto size, const RouterRows& rows, Grid grid) {
    blocks = grid.blocks = std::min(kMostBlocks, grid.blocks);
    launch(z_loss_parts<size>, grid, stream, rows, logits, parts);
  });
  launch(add_loss_parts, {.threads = kSumThreads}, stream, static_cast<const float*>(parts),
         blocks, static_cast<float>(coefficient), loss);
}

template <typename Vendor>
void router_z_loss_gradient_device(int64_t tokens, int64_t experts, double coefficient,
                                   const float* logits, const float* loss_gradient,
                                   float* logits_gradient, Stream& stream) {
  const auto factor = static_cast<float>(2 * coefficient);
  for_router_rows(tokens, experts, [&](auto size, const RouterRows& rows, const Grid& grid) {
    launch(z_loss_gradient_rows<size>, grid, stream, rows, factor, logits, loss_gradient,
           logits_gradient);
  });
}

template void router_z_loss_device<ThisVendor>(int64_t, int64_t, double, const float*, float*,
                                               float*, Stream&);
template void router_z_loss_gradient_device<ThisVendor>(int64_t, int64_t, double, const float*,
                                                        const float*, float*, Stream&);

}  // namespace tessera
