#include "ops/gemm/gemm_plan.h"

#include <algorithm>

#include "base/round_up.h"
#include "ops/support.h"

// The memory of the processor's products, which a plan needs before they exist. None is planned for
// plain loops, nor for oneDNN below AVX-512. For AVX-512 and AMX, the functions below bound what
// oneDNN asks for; make_onednn_gemm() cuts products that ask for more.

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

bool is_plain(const Target& target, const GemmShape& shape) {
  return shape.is_empty() || use_plain(target, shape.input) ||
         target.instructions == MatrixInstructions::none;
}

// The functions below bound the scratch memory of oneDNN 2.6's blocked products (brgemm), which the
// library does not document. A thread has copies of a part of A and of a part of B, and sums in f32
// of a part of C. The constants were fitted to the sizes that the library asks for. They were
// tested with 1,880 products of the shipped configurations, with 1, 2 and 16 threads, and for AMX
// with 44,000 random products, with 1 to 32 threads and sides of up to 8,192. No product asks for
// more than the bound.

/// Returns a bound of the number of rows of A that a thread works on at a time.
int64_t part_rows(const GemmShape& shape) { return std::min<int64_t>(round_up(shape.m, 16), 256); }

/// Returns how many columns of C a thread works on at a time: at most `max_blocks` blocks of 64.
int64_t part_columns(const GemmShape& shape, int64_t max_blocks) {
  return 64 * std::min(max_blocks, round_up(shape.n, 64) / 64);
}

/// Returns whether sums need memory besides C, because they are added to C or rounded at the end.
bool sums_outside_c(const GemmShape& shape) {
  return shape.accumulate || shape.output != DType::f32;
}

/// Returns the bound of one thread's bytes for products by vector instructions.
int64_t avx512_thread_bytes(const GemmShape& shape) {
  const int64_t element = dtype_size(shape.input);
  const bool pairs = shape.input == DType::bf16;  // elements along k are multiplied in pairs
  const bool copies_a = shape.transpose_a || (pairs && (shape.k >= 512 || shape.k % 2 != 0));
  int64_t bytes = 2048;
  if (copies_a) {
    const int64_t depth = std::min<int64_t>(round_up(shape.k, 16), shape.transpose_a ? 512 : 1024);
    bytes += part_rows(shape) * (depth + 32) * element;
  }
  if (!shape.packed_b) bytes += std::min<int64_t>(round_up(shape.k, 16) + 16, 1040) * 64 * element;
  if (sums_outside_c(shape)) {
    bytes += part_rows(shape) * part_columns(shape, copies_a ? 16 : 1) * dtype_size(DType::f32);
  }
  return bytes;
}

/// Returns the bound of one thread's bytes for products of bf16 by AMX.
int64_t amx_thread_bytes(const GemmShape& shape) {
  const int64_t element = dtype_size(shape.input);
  const int64_t depth = round_up(shape.k, 64);
  const bool part_of_tile = shape.k % 32 != 0;  // tiles hold 32 elements along k
  const int64_t rows_of_a = round_up(shape.m, 16) * (depth + 128);
  int64_t copies = 0;
  if (part_of_tile) {
    copies += std::min<int64_t>(2 * rows_of_a, 700 * 1024) * element;
  } else if (shape.transpose_a) {
    copies += std::min<int64_t>(rows_of_a, 256 * 1344) * element;
  }
  if (!shape.packed_b) {
    copies += std::min(depth * 64 * element, kMiB) * (shape.transpose_a || part_of_tile ? 2 : 1);
  }
  int64_t bytes = 32768 + copies * 5 / 4;
  if (sums_outside_c(shape) || shape.k >= 1024) {
    const int64_t rows = std::min<int64_t>(round_up(shape.m, 64) + 64, 256);
    bytes += rows * part_columns(shape, 6) * dtype_size(DType::f32);
  }
  return bytes;
}

/// Returns the bytes in which the library may copy a small product whole: all operands and the
/// sums, up to 256 KiB. The larger of these bytes and the bounds above counts.
int64_t small_thread_bytes(const GemmShape& shape) {
  const int64_t element = dtype_size(shape.input);
  const int64_t whole = element * (round_up(shape.m, 64) + 64) * (round_up(shape.k, 64) + 64) +
                        dtype_size(DType::f32) * round_up(shape.m, 64) * round_up(shape.n, 64) +
                        kMiB / 8;
  return std::min(whole, kMiB / 4);
}

/// Returns the bound of the bytes of all threads of one product.
int64_t blocked_bytes(const Target& target, const GemmShape& shape) {
  const int64_t sums = shape.m * shape.n * dtype_size(DType::f32);
  const bool gaps = shape.lda != (shape.transpose_a ? shape.m : shape.k) ||
                    (!shape.packed_b && shape.ldb != (shape.transpose_b ? shape.k : shape.n));
  if (gaps && shape.output == DType::bf16) {
    return shape.threads * (round_up(sums, 256) + 128);  // each thread has a whole result in f32
  }

  const bool amx = target.instructions == MatrixInstructions::amx && shape.input == DType::bf16;
  // If C has too few columns for all threads, the threads divide k. Then each has sums of all of C.
  const bool shares_k = shape.transpose_a && shape.k >= (amx ? 1024 : 2048) &&
                        shape.threads > round_up(shape.n, 64) / 64;
  const int64_t blocked = amx ? amx_thread_bytes(shape) : avx512_thread_bytes(shape);
  return shape.threads * (std::max(blocked, small_thread_bytes(shape)) + (shares_k ? sums : 0));
}

}  // namespace

bool multiplies(const Target& target, DType dtype) {
  return dtype != DType::bf16 || target.instructions == MatrixInstructions::none ||
         target.instructions >= MatrixInstructions::avx512_bf16;
}

bool widens(const Target& target, const GemmShape& shape) {
  const bool tiles = shape.input == DType::bf16 && target.instructions == MatrixInstructions::amx;
  return !multiplies(target, shape.input) || (tiles && shape.k % 2 != 0);
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
  if (widens(target, shape)) {
    return widened_workspace_bytes(
        shape, [&](const GemmShape& part) { return gemm_workspace_bytes(target, part); });
  }
  return target.instructions >= MatrixInstructions::avx512 ? blocked_bytes(target, shape) : 0;
}

int64_t gemm_packed_bytes(const Target& target, const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  if (!shape.packed_b || is_plain(target, shape) || widens(target, shape)) return 0;
  const int64_t element = dtype_size(shape.input);
  if (target.instructions >= MatrixInstructions::avx512) {  // in blocks of 64 or 48 columns
    const int64_t columns = std::max(round_up(shape.n, 64), round_up(shape.n, 48));
    return element * round_up(shape.k, shape.input == DType::bf16 ? 32 : 16) * columns;
  }
  const bool needs_no_copy = !shape.transpose_b && shape.ldb == shape.n;
  return needs_no_copy ? 0 : element * shape.k * shape.n;
}

}  // namespace tessera
