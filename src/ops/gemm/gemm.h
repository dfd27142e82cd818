#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "program/runtime.h"
#include "tensor/dtype.h"

namespace tessera {

/// One matrix product C = A B or C += A B over row-major memory. A is [m, k] (stored [k, m] when
/// transpose_a), B is [k, n] (stored [n, k] when transpose_b), C is [m, n]. Leading dimensions are
/// in elements; 0 means without gaps. A and B have one type; C is of that type or of its
/// accumulation type. Sums are taken in f32 (f64 for f64).
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType input = DType::f32;
  DType output = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool packed_b = false;  ///< B is what Gemm::pack() gives
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  int threads = 1;  ///< 1 for a product called from within a parallel region

  bool operator==(const GemmShape&) const = default;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Of all fields.
struct GemmShapeHash {
  size_t operator()(const GemmShape& shape) const;
};

/// A matrix product made ready: oneDNN's primitive for this shape, or plain loops for f64, for
/// Kernels::plain and for builds without oneDNN.
class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Scratch bytes that one run needs: at most what gemm_workspace_bytes() plans.
  virtual int64_t workspace_bytes() const = 0;
  /// Bytes that pack() writes, at most what gemm_packed_bytes() plans; 0 where the product takes B
  /// as it lies.
  virtual int64_t packed_bytes() const { return 0; }
  /// Whether it was cut into products of fewer rows, since the library asked for more scratch
  /// memory than the plan has: right, but slower. No plan should come to that.
  virtual bool cut() const { return false; }
  /// For a shape with packed_b: lays B out in `memory`, of packed_bytes(), as the product reads it
  /// fastest, and gives what run() takes for B: `memory`, or `b` where nothing is laid out. Runs on
  /// the product's threads. It pays where B is used for several hundred rows of A.
  virtual const void* pack(const void* b, std::byte* memory) const;
  /// Runs it. Safe from several threads at once with a workspace for each.
  void run(const void* a, const void* b, void* c, std::byte* workspace) const {
    if (counted_) runs_.fetch_add(1, std::memory_order_relaxed);
    multiply(a, b, c, workspace);
  }

 private:
  friend class GemmCounter;
  virtual void multiply(const void* a, const void* b, void* c, std::byte* workspace) const = 0;

  bool counted_ = false;  // changes only while no product of the runtime runs
  mutable std::atomic<int64_t> runs_{0};
};

/// The product of this shape from the runtime's cache, made at first use (0.2 to 3 ms). Not to be
/// called from within a parallel region; what it gives may be run there. An m, n or k of zero is
/// allowed.
const Gemm& prepare_gemm(Runtime& runtime, const GemmShape& shape);

/// A product and how often it ran.
struct GemmRuns {
  GemmShape shape;  ///< leading dimensions written out
  int64_t runs = 0;

  bool operator==(const GemmRuns&) const = default;
};

/// Counts the runs of a runtime's products while it lives: what the operations have really
/// multiplied, with the tokens that experts got and the tiles that masks left. One at a time.
class GemmCounter {
 public:
  explicit GemmCounter(Runtime& runtime);
  ~GemmCounter();
  GemmCounter(const GemmCounter&) = delete;
  GemmCounter& operator=(const GemmCounter&) = delete;

  /// What ran since the last call, those with most FLOPs first. Not to be called while one runs.
  std::vector<GemmRuns> take();

 private:
  friend const Gemm& prepare_gemm(Runtime& runtime, const GemmShape& shape);
  static void count(Gemm& product);

  Runtime& runtime_;
};

}  // namespace tessera
