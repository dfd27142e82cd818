#include "ops/gemm/symmetric_product.h"

#include "base/round_up.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The columns of a block: a twelfth of all, so that 13/24 of the FLOPs are left; but no fewer than
/// products are fast with.
int64_t block_columns(const Target& target, const SymmetricSize& size) {
  if (use_plain(target, size.dtype) || size.n < 512) return std::max<int64_t>(size.n, 1);
  return std::max<int64_t>(128, round_up((size.n + 11) / 12, 64));
}

/// The product of the block that begins at column `first`.
GemmShape block_shape(const SymmetricSize& size, int64_t first, int64_t columns) {
  const int64_t end = std::min(size.n, first + columns);
  return {.m = end,
          .n = end - first,
          .k = size.k,
          .input = size.dtype,
          .output = size.dtype,
          .transpose_b = true,
          .ldc = size.n,
          .threads = size.threads};
}

}  // namespace

SymmetricProduct::SymmetricProduct(Runtime& runtime, const SymmetricSize& size) : size_(size) {
  const int64_t columns = block_columns(runtime.target(), size);
  for (int64_t first = 0; first < size.n; first += columns) {
    blocks_.push_back({&prepare_gemm(runtime, block_shape(size, first, columns)), first});
  }
}

int64_t SymmetricProduct::workspace_bytes(const Target& target, const SymmetricSize& size) {
  const int64_t columns = block_columns(target, size);
  int64_t bytes = 0;
  for (int64_t first = 0; first < size.n; first += columns) {
    bytes = std::max(bytes, gemm_workspace_bytes(target, block_shape(size, first, columns)));
  }
  return bytes;
}

void SymmetricProduct::run_upper(const void* a, void* c, std::byte* workspace) const {
  const int64_t element = dtype_size(size_.dtype);
  const auto* const rows = static_cast<const std::byte*>(a);
  auto* const result = static_cast<std::byte*>(c);
  for (const Block& block : blocks_) {
    block.product->run(rows, rows + block.first * size_.k * element, result + block.first * element,
                       workspace);
  }
}

}  // namespace tessera
