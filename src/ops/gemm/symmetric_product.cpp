#include "ops/gemm/symmetric_product.h"

#include "base/parallel.h"
#include "base/round_up.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

struct ColumnBlocks {
  int64_t columns;        // of a block
  int concurrent_blocks;  // blocks at a time, each by one thread; 1 if all threads compute each
};

/// Returns the smallest number of columns of a block. Products of fewer columns are slow.
int64_t min_columns(const Target& target, DType dtype) {
  const bool tiles = dtype == DType::bf16 && target.instructions == MatrixInstructions::amx;
  return tiles ? 256 : 64;
}

/// Returns the blocks of C. A block has a sixteenth of all columns, but at least min_columns(). So
/// a large product takes about 17/32 of the FLOPs. The blocks do not depend on the number of
/// threads, so C's bits depend on it no more than in other products. If there are at least two
/// blocks for each thread, a thread computes whole blocks.
ColumnBlocks column_blocks(const Target& target, const SymmetricSize& size) {
  const int64_t minimum = min_columns(target, size.dtype);
  const bool is_small = size.n < 4 * minimum;
  if (use_plain(target, size.dtype) || is_small) return {std::max<int64_t>(size.n, 1), 1};
  const int64_t columns = round_up((size.n + 15) / 16, minimum);
  const int64_t count = (size.n + columns - 1) / columns;
  return {columns, count >= 2 * size.threads ? size.threads : 1};
}

/// Returns whether the right operand of a block, some rows of A, is transposed before the product.
/// That makes products of few columns faster in f32. oneDNN rearranges bf16 in any case.
bool transposes(const SymmetricSize& size, const ColumnBlocks& blocks) {
  return size.dtype == DType::f32 && blocks.columns < size.n;
}

/// Returns the product of columns [first, end) of C.
GemmShape block_shape(const SymmetricSize& size, int64_t first, int64_t end,
                      const ColumnBlocks& blocks) {
  return {.m = end,
          .n = end - first,
          .k = size.k,
          .input = size.dtype,
          .output = size.dtype,
          .transpose_b = !transposes(size, blocks),
          .ldc = size.n,
          .threads = blocks.concurrent_blocks > 1 ? 1 : size.threads};
}

/// Returns the bytes of the transposed rows of a block.
int64_t rows_bytes(const SymmetricSize& size, const ColumnBlocks& blocks) {
  return transposes(size, blocks) ? aligned_bytes(blocks.columns * size.k * dtype_size(size.dtype))
                                  : 0;
}

int64_t block_bytes(const Target& target, const SymmetricSize& size, const ColumnBlocks& blocks) {
  int64_t bytes = 0;
  for (int64_t first = 0; first < size.n; first += blocks.columns) {
    const int64_t end = std::min(size.n, first + blocks.columns);
    bytes = std::max(bytes, gemm_workspace_bytes(target, block_shape(size, first, end, blocks)));
  }
  return rows_bytes(size, blocks) + aligned_bytes(bytes);
}

}  // namespace

SymmetricProduct::SymmetricProduct(Runtime& runtime, const SymmetricSize& size) : size_(size) {
  const ColumnBlocks blocks = column_blocks(runtime.target(), size);
  concurrent_blocks_ = blocks.concurrent_blocks;
  rows_bytes_ = rows_bytes(size, blocks);
  block_bytes_ = block_bytes(runtime.target(), size, blocks);
  for (int64_t first = 0; first < size.n; first += blocks.columns) {
    const int64_t end = std::min(size.n, first + blocks.columns);
    blocks_.push_back({&prepare_gemm(runtime, block_shape(size, first, end, blocks)), first, end});
  }
  std::ranges::reverse(blocks_);  // the largest first
}

int64_t SymmetricProduct::workspace_bytes(const Target& target, const SymmetricSize& size) {
  const ColumnBlocks blocks = column_blocks(target, size);
  return blocks.concurrent_blocks * block_bytes(target, size, blocks);
}

void SymmetricProduct::run_blocks(const void* a, void* c, std::byte* workspace,
                                  const std::function<void(int64_t, int64_t)>& finish) const {
  const bool by_one_thread = concurrent_blocks_ == size_.threads;
  parallel_items(concurrent_blocks_, std::ssize(blocks_), [&](int64_t i, int thread) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    run_block(block, a, c, workspace + thread * block_bytes_);
    if (by_one_thread) finish(block.first, block.end);
  });
  if (by_one_thread) return;
  const int64_t tiles = (size_.n + kTile - 1) / kTile;
  parallel_items(size_.threads, tiles, [&](int64_t i, int) {
    const int64_t first = (tiles - 1 - i) * kTile;  // those with the most rows first
    finish(first, std::min(size_.n, first + kTile));
  });
}

void SymmetricProduct::run_block(const Block& block, const void* a, void* c,
                                 std::byte* workspace) const {
  dispatch_floating(size_.dtype, [&]<typename T>(T) {
    const T* right = static_cast<const T*>(a) + block.first * size_.k;
    if (rows_bytes_ > 0) {
      auto* const transposed = reinterpret_cast<T*>(workspace);
      const int64_t columns = block.end - block.first;
      parallel_items(size_.threads / concurrent_blocks_, (size_.k + kTile - 1) / kTile,
                     [&, right](int64_t tile, int) {
                       const int64_t begin = tile * kTile;
                       transpose(columns, std::min(kTile, size_.k - begin), right + begin, size_.k,
                                 transposed + begin * columns, columns);
                     });
      right = transposed;
    }
    block.product->run(a, right, static_cast<T*>(c) + block.first, workspace + rows_bytes_);
  });
}

}  // namespace tessera
