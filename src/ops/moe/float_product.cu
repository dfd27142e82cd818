#include "ops/moe/group_part.h"

namespace tessera {
namespace {

constexpr int kSide = 32;  // rows and columns of the tile of D that a block computes
constexpr int kTileThreads = 256;
constexpr int kTileRows = kSide * kSide / kTileThreads;  // elements of D per thread

/// The tile of D that a block computes, and the sizes of its group's matrices. blockIdx.x counts
/// the tiles along m of all groups, blockIdx.y the tiles along n. Only the device knows the rows of
/// the groups, so each block finds its group by walking through the offsets.
struct FloatTile {
  bool exists = false;
  int64_t group = 0;
  int64_t first_row = 0;  // of the group
  int64_t m = 0, n = 0, k = 0;
  int64_t from_m = 0, from_n = 0;  // the tile's first row and column in the group's D

  __device__ explicit FloatTile(const FloatProduct& product) {
    int64_t tile = blockIdx.x;
    const int64_t tiles_of_m = (product.size[0] + kSide - 1) / kSide;
    if (product.rows_are_k) {
      group = tile / tiles_of_m;
      tile -= group * tiles_of_m;
    } else {
      for (; group < product.groups; ++group) {
        const int64_t tiles = (rows_of(product, group) + kSide - 1) / kSide;
        if (tile < tiles) break;
        tile -= tiles;
      }
      if (group == product.groups) return;
    }
    const int64_t rows = rows_of(product, group);
    exists = rows > 0;
    first_row = product.offsets[group];
    m = product.rows_are_k ? product.size[0] : rows;
    n = product.size[1];
    k = product.rows_are_k ? rows : product.size[2];
    from_m = tile * kSide;
    from_n = static_cast<int64_t>(blockIdx.y) * kSide;
  }

  __device__ static int64_t rows_of(const FloatProduct& product, int64_t group) {
    return product.offsets[group + 1] - product.offsets[group];
  }
};

// The extra column lets the threads of a warp read a column of a side from different memory banks.
using SharedSide = float[kSide][kSide + 1];

/// Writes tile[i][j] = the operand's element (from_i + i, from_k + j), or 0 past the end.
__device__ inline void load_side(const FloatOperand& operand, const void* part, int64_t from_i,
                                 int64_t end_i, int64_t from_k, int64_t end_k, SharedSide& tile) {
  const auto* const elements = static_cast<const float*>(part);
  for (int at = static_cast<int>(threadIdx.x); at < kSide * kSide; at += kTileThreads) {
    const bool along_k = operand.step_k == 1;  // neighbouring threads read neighbours in memory
    const int i = along_k ? at / kSide : at % kSide;
    const int j = along_k ? at % kSide : at / kSide;
    const int64_t row = from_i + i, column = from_k + j;
    const bool inside = row < end_i && column < end_k;
    tile[i][j] = inside ? elements[row * operand.step + column * operand.step_k] : 0.0f;
  }
}

/// Computes a tile of one group's D per block: D[i, j] = Σ_k A[i, k] · B[k, j], added to D if
/// `accumulate`.
__global__ void __launch_bounds__(kTileThreads) float_product(FloatProduct product) {
  __shared__ SharedSide a_side;
  __shared__ SharedSide b_side;
  const FloatTile tile(product);
  if (!tile.exists) return;
  const void* const a = part_of_group(product.a.memory, tile.first_row, tile.group);
  const void* const b = part_of_group(product.b.memory, tile.first_row, tile.group);
  const int column = static_cast<int>(threadIdx.x) % kSide;
  const int row = static_cast<int>(threadIdx.x) / kSide * kTileRows;
  float sums[kTileRows] = {};
  for (int64_t from_k = 0; from_k < tile.k; from_k += kSide) {
    load_side(product.a, a, tile.from_m, tile.m, from_k, tile.k, a_side);
    load_side(product.b, b, tile.from_n, tile.n, from_k, tile.k, b_side);
    __syncthreads();
    for (int j = 0; j < kSide; ++j) {
      for (int i = 0; i < kTileRows; ++i) sums[i] += a_side[row + i][j] * b_side[column][j];
    }
    __syncthreads();  // before the sides are written again
  }
  auto* const d = static_cast<float*>(
      const_cast<void*>(part_of_group(product.d, tile.first_row, tile.group)));
  for (int i = 0; i < kTileRows; ++i) {
    const int64_t at_m = tile.from_m + row + i, at_n = tile.from_n + column;
    if (at_m >= tile.m || at_n >= tile.n) continue;
    float& result = d[at_m * product.d.stride + at_n];
    result = product.accumulate ? result + sums[i] : sums[i];
  }
}

}  // namespace

template <typename Vendor>
void float_product_device(const FloatProduct& product, Stream& stream) {
  // Each group's rows make at most one tile that is not full.
  const int64_t tiles = product.rows_are_k
                            ? product.groups * ((product.size[0] + kSide - 1) / kSide)
                            : product.rows / kSide + product.groups;
  launch(float_product,
         {.blocks = tiles,
          .threads = kTileThreads,
          .blocks_y = (product.size[1] + kSide - 1) / kSide},
         stream, product);
}

template void float_product_device<ThisVendor>(const FloatProduct&, Stream&);

}  // namespace tessera
