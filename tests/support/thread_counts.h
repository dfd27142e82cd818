#pragma once

#include <gtest/gtest.h>

#include "ops/gemm/gemm.h"
#include "ops/host_target.h"
#include "support/bits.h"

namespace tessera::testing {

/// What an operation's fast kernel gives beside its plain one, on random numbers.
enum class FastKernel {
  other_bits,  ///< sums and functions are taken otherwise: some bit differs
  same_bits    ///< one kernel is both, or both take the same steps
};

/// Of an operation that is nothing but matrix products: without oneDNN they are plain loops.
inline FastKernel of_products() {
  const GemmShape one{.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
  return make_onednn_gemm(one, host_target(1)) ? FastKernel::other_bits : FastKernel::same_bits;
}

/// Why a test of the bits of products is skipped where rows_keep_their_bits() is false.
inline constexpr const char* kBitsChange =
    "below AVX-512 the bits of oneDNN's products depend on threads and rows";

/// Expects equal bits of all that the fast kernel gives, on the usual numbers of threads and on
/// some that divide nothing evenly. `run(kernels, threads)` gives the Bits; its sizes should leave
/// work for eight threads. That the fast kernel is what ran shows by the plain one's bits.
template <typename Run>
void expect_same_bits_on_any_threads(const Run& run, FastKernel fast = FastKernel::other_bits) {
  const Bits one = run(Kernels::fast, 1);
  ASSERT_FALSE(one.empty());
  for (const int threads : {2, 3, 5, 8}) {
    EXPECT_TRUE(run(Kernels::fast, threads) == one) << "other bits on " << threads << " threads";
  }
  EXPECT_EQ(run(Kernels::plain, 2) == one, fast == FastKernel::same_bits)
      << "the bits of the plain kernel";
}

}  // namespace tessera::testing
