#include "ops/gemm/gemm_plan.h"

#include <algorithm>

#include "base/round_up.h"
#include "ops/gemm/widened_gemm.h"
#include "ops/support.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

bool is_plain(const Target& target, const GemmShape& shape) {
  const bool empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  return empty || use_plain(target, shape.input) || target.instructions == MatrixInstructions::none;
}

/// Of oneDNN 2.6's blocked products (brgemm) and of its general ones, with room to spare: on
/// 1,880 products of the shipped configurations, with 1, 2 and 16 threads, none asked for more.
int64_t blocked_bytes(const GemmShape& shape) {
  const int64_t element = dtype_size(shape.input);
  const int64_t sums = shape.m * shape.n * dtype_size(DType::f32);
  const bool gaps = shape.lda != (shape.transpose_a ? shape.m : shape.k);
  if (gaps && shape.output == DType::bf16) {
    return shape.threads * (round_up(sums, 256) + 64);  // a whole result in f32, each thread's own
  }
  // Copies of parts of A and B, sums of a part of C, and tiles.
  const int64_t parts = element * (round_up(shape.m, 64) + 64) * (round_up(shape.k, 64) + 64) +
                        dtype_size(DType::f32) * round_up(shape.m, 64) * round_up(shape.n, 64) +
                        kMiB / 8;
  int64_t bytes = shape.threads * std::min(parts, shape.threads > 1 ? 2 * kMiB : kMiB);
  // Too few columns for all threads: they share out k, each with sums of all of C.
  const bool shares_k =
      shape.transpose_a && shape.k >= 2048 && shape.threads > round_up(shape.n, 64) / 64;
  if (shares_k) bytes += shape.threads * sums;
  return bytes;
}

}  // namespace

bool multiplies(const Target& target, DType dtype) {
  return dtype != DType::bf16 || target.instructions == MatrixInstructions::none ||
         target.instructions >= MatrixInstructions::avx512_bf16;
}

bool rows_keep_their_bits(const Target& target) {
  return target.instructions == MatrixInstructions::none ||
         target.instructions >= MatrixInstructions::avx512;
}

GemmShape with_leading(GemmShape shape) {
  if (shape.lda == 0) shape.lda = shape.transpose_a ? shape.m : shape.k;
  if (shape.ldb == 0) shape.ldb = shape.transpose_b ? shape.k : shape.n;
  if (shape.ldc == 0) shape.ldc = shape.n;
  return shape;
}

int64_t gemm_workspace_bytes(const Target& target, const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  if (is_plain(target, shape)) return 0;
  if (!multiplies(target, shape.input)) {
    return widened_workspace_bytes(
        shape, [&](const GemmShape& part) { return gemm_workspace_bytes(target, part); });
  }
  return target.instructions >= MatrixInstructions::avx512 ? blocked_bytes(shape) : 0;
}

int64_t gemm_packed_bytes(const Target& target, const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  if (!shape.packed_b || is_plain(target, shape) || !multiplies(target, shape.input)) return 0;
  const int64_t element = dtype_size(shape.input);
  if (target.instructions >= MatrixInstructions::avx512) {  // in blocks of 64 columns
    return element * round_up(shape.k, 16) * round_up(shape.n, 64);
  }
  const bool as_it_lies = !shape.transpose_b && shape.ldb == shape.n;
  return as_it_lies ? 0 : element * shape.k * shape.n;
}

}  // namespace tessera
