#include <cstddef>

#include "device/kernel.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {
namespace {

/// Returns the address of a group's part of an operand, or null. `first_row` is offsets[group].
__device__ inline const void* part_of_group(const GroupedOperand& operand, int64_t first_row,
                                            int64_t group) {
  if (operand.base == nullptr) return nullptr;
  return static_cast<const std::byte*>(operand.base) + first_row * operand.row_bytes +
         group * operand.group_bytes;
}

constexpr int kTileSide = 32;  // rows and columns of the tile of D that a block computes
constexpr int kTileThreads = 256;
constexpr int kTileRows = kTileSide * kTileSide / kTileThreads;  // elements of D per thread

/// The tile of D that a block computes, and the sizes of its group's matrices. blockIdx.x counts
/// the tiles along m of all groups, blockIdx.y the tiles along n. If m is a group's rows, the
/// groups have different numbers of tiles, which only the device knows. So a block walks through
/// the offsets to find its group. A block past the last tile, or of an empty group, has no tile.
struct FloatTile {
  bool exists = false;
  int64_t group = 0;
  int64_t first_row = 0;  // the group's first row
  int64_t m = 0, n = 0, k = 0;
  int64_t from_m = 0, from_n = 0;  // the tile's first row and column in the group's D

  __device__ explicit FloatTile(const FloatProduct& product) {
    int64_t tile = blockIdx.x;
    const int64_t tiles_of_m = (product.size[0] + kTileSide - 1) / kTileSide;
    if (product.rows_are_k) {
      group = tile / tiles_of_m;
      tile -= group * tiles_of_m;
    } else {
      for (; group < product.groups; ++group) {
        const int64_t tiles = (rows_of(product, group) + kTileSide - 1) / kTileSide;
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
    from_m = tile * kTileSide;
    from_n = static_cast<int64_t>(blockIdx.y) * kTileSide;
  }

  __device__ static int64_t rows_of(const FloatProduct& product, int64_t group) {
    return product.offsets[group + 1] - product.offsets[group];
  }
};

// A tile of A or B. With the extra column, a warp reads a column of it from different banks.
using SharedTile = float[kTileSide][kTileSide + 1];

/// Writes tile[i][j] = the operand's element (from_i + i, from_k + j), or 0 past the end.
__device__ inline void load_tile(const FloatOperand& operand, const void* part, int64_t from_i,
                                 int64_t end_i, int64_t from_k, int64_t end_k, SharedTile& tile) {
  const auto* const elements = static_cast<const float*>(part);
  for (int item = static_cast<int>(threadIdx.x); item < kTileSide * kTileSide;
       item += kTileThreads) {
    const bool along_k = operand.step_k == 1;  // neighbouring threads read neighbours in memory
    const int i = along_k ? item / kTileSide : item % kTileSide;
    const int j = along_k ? item % kTileSide : item / kTileSide;
    const int64_t row = from_i + i, column = from_k + j;
    const bool inside = row < end_i && column < end_k;
    tile[i][j] = inside ? elements[row * operand.step + column * operand.step_k] : 0.0f;
  }
}

/// Computes a tile of a group's D per block: D[i, j] = Σ_k A[i, k] B[k, j], plus D if `accumulate`.
__global__ void __launch_bounds__(kTileThreads) float_product(FloatProduct product) {
  __shared__ SharedTile a_tile;
  __shared__ SharedTile b_tile;
  const FloatTile tile(product);
  if (!tile.exists) return;
  const void* const a = part_of_group(product.a.memory, tile.first_row, tile.group);
  const void* const b = part_of_group(product.b.memory, tile.first_row, tile.group);
  const int column = static_cast<int>(threadIdx.x) % kTileSide;
  const int row = static_cast<int>(threadIdx.x) / kTileSide * kTileRows;
  float sums[kTileRows] = {};
  for (int64_t from_k = 0; from_k < tile.k; from_k += kTileSide) {
    load_tile(product.a, a, tile.from_m, tile.m, from_k, tile.k, a_tile);
    load_tile(product.b, b, tile.from_n, tile.n, from_k, tile.k, b_tile);
    __syncthreads();
    for (int j = 0; j < kTileSide; ++j) {
      for (int i = 0; i < kTileRows; ++i) sums[i] += a_tile[row + i][j] * b_tile[column][j];
    }
    __syncthreads();  // before the tiles are written again
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

/// Writes the lists and the factors of the table, with one thread per group.
__global__ void write_group_table(GroupTable table) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (group >= table.groups) return;
  const int32_t first_row = table.offsets[group];
  const int32_t rows = table.offsets[group + 1] - first_row;
  int32_t* const size = table.sizes + group * table.group_step;
  size[0] = !table.rows_are_k ? rows : rows > 0 ? table.size[0] : 0;
  size[table.size_step] = table.size[1];
  size[2 * table.size_step] = table.rows_are_k ? rows : table.size[2];
  if (group == 0) {
    table.factors[0] = 1.0f;
    table.factors[1] = table.beta;
  }
  for (int i = 0; i < kGroupedOperands; ++i) {
    table.addresses[i][group] = part_of_group(table.operands[i], first_row, group);
    table.strides[i][group] = table.operands[i].stride;
  }
}

}  // namespace

template <typename Vendor>
void float_product_device(const FloatProduct& product, Stream& stream) {
  // An upper bound: each group's rows make at most one tile that is not full.
  const int64_t tiles = product.rows_are_k
                            ? product.groups * ((product.size[0] + kTileSide - 1) / kTileSide)
                            : product.rows / kTileSide + product.groups;
  launch(float_product,
         {.blocks = tiles,
          .threads = kTileThreads,
          .blocks_y = (product.size[1] + kTileSide - 1) / kTileSide},
         stream, product);
}

template void float_product_device<ThisVendor>(const FloatProduct&, Stream&);

template <typename Vendor>
void write_group_table_device(const GroupTable& table, Stream& stream) {
  constexpr int kThreads = 128;
  launch(write_group_table,
         {.blocks = (table.groups + kThreads - 1) / kThreads, .threads = kThreads}, stream, table);
}

template void write_group_table_device<ThisVendor>(const GroupTable&, Stream&);

}  // namespace tessera
