#pragma once

#include <cstddef>

#include "ops/gemm/symmetric_product.h"
#include "ops/update/matrix_labels.h"
#include "tensor/alignment.h"

namespace tessera {

/// The parts of a workspace, one after the other.
struct WorkspaceParts {
  /// Appends a part of that size and returns its offset.
  int64_t append(int64_t part_bytes) {
    const int64_t offset = bytes;
    bytes += aligned_bytes(part_bytes);
    return offset;
  }

  int64_t bytes = 0;
};

/// Orthogonalises matrices of one size on the processor, one at a time (see newton_schulz()).
class Orthogonalise {
 public:
  /// The size of the matrices, and the options of their steps.
  struct Size {
    MatrixExtent extent;  ///< its `count` is not used
    DType dtype = DType::f32;
    int64_t steps = 5;
    int threads = 1;  ///< 1 if several matrices are computed in parallel
  };

  /// Prepares the products. Unlike run(), it must not be called within a parallel region.
  Orthogonalise(Runtime& runtime, const Size& size);
  /// Returns the bytes of the workspace of one run().
  static int64_t workspace_bytes(const Target& target, const Size& size);

  /// Orthogonalises one matrix. `in` and `out` may be the same memory.
  void run(const void* in, void* out, std::byte* workspace) const;

 private:
  template <typename T>
  void run_in(const T* in, T* out, std::byte* workspace) const;
  template <typename T>
  void step(const T* x, T* next, std::byte* workspace) const;

  Size size_;
  SymmetricProduct gram_;    // X Xᵀ
  SymmetricProduct square_;  // A A
  const Gemm* product_;      // (a + b A + c A²) X
};

}  // namespace tessera
