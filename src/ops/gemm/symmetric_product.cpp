#include "ops/gemm/symmetric_product.h"

#include "base/round_up.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// How C is cut into blocks of columns.
struct Cut {
  int64_t columns;   // of a block
  int side_by_side;  // blocks at a time, each by one thread; 1 if all threads compute each
};

/// A block has a sixteenth of all columns, so that about 17/32 of the FLOPs of a large product are
/// left; but no fewer than products are fast with. The cut does not depend on the threads, so bits
/// do not either. If each thread has two blocks or more, their work is even.
Cut cut_of(const Target& target, const SymmetricSize& size) {
  if (use_plain(target, size.dtype) || size.n < 256) return {std::max<int64_t>(size.n, 1), 1};
  const int64_t columns = round_up((size.n + 15) / 16, 64);
  const int64_t blocks = (size.n + columns - 1) / columns;
  return {columns, blocks >= 2 * size.threads ? size.threads : 1};
}

/// The product of the block that begins at column `first`.
GemmShape block_shape(const SymmetricSize& size, int64_t first, const Cut& cut) {
  const int64_t end = std::min(size.n, first + cut.columns);
  return {.m = end,
          .n = end - first,
          .k = size.k,
          .input = size.dtype,
          .output = size.dtype,
          .transpose_b = true,
          .ldc = size.n,
          .threads = cut.side_by_side > 1 ? 1 : size.threads};
}

/// The scratch memory of a block.
int64_t block_bytes(const Target& target, const SymmetricSize& size, const Cut& cut) {
  int64_t bytes = 0;
  for (int64_t first = 0; first < size.n; first += cut.columns) {
    bytes = std::max(bytes, gemm_workspace_bytes(target, block_shape(size, first, cut)));
  }
  return aligned_bytes(bytes);
}

}  // namespace

SymmetricProduct::SymmetricProduct(Runtime& runtime, const SymmetricSize& size) : size_(size) {
  const Cut cut = cut_of(runtime.target(), size);
  side_by_side_ = cut.side_by_side;
  block_bytes_ = block_bytes(runtime.target(), size, cut);
  for (int64_t first = 0; first < size.n; first += cut.columns) {
    blocks_.push_back({&prepare_gemm(runtime, block_shape(size, first, cut)), first});
  }
  std::ranges::reverse(blocks_);  // the largest first
}

int64_t SymmetricProduct::workspace_bytes(const Target& target, const SymmetricSize& size) {
  const Cut cut = cut_of(target, size);
  return cut.side_by_side * block_bytes(target, size, cut);
}

void SymmetricProduct::run_upper(const void* a, void* c, std::byte* workspace) const {
  const int64_t element = dtype_size(size_.dtype);
  const auto* const rows = static_cast<const std::byte*>(a);
  auto* const result = static_cast<std::byte*>(c);
  parallel_items(side_by_side_, std::ssize(blocks_), [&](int64_t i, int thread) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    block.product->run(rows, rows + block.first * size_.k * element, result + block.first * element,
                       workspace + thread * block_bytes_);
  });
}

}  // namespace tessera
