#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "program/runtime.h"
#include "tensor/dtype.h"

namespace tessera {

/// One matrix product C = A B, or C += A B if `accumulate`, over row-major memory. A is [m, k],
/// stored as [k, m] if transpose_a. B is [k, n], stored as [n, k] if transpose_b. C is [m, n].
/// Leading dimensions are in elements; 0 means no gaps. A and B have the same type. C has that type
/// or its accumulation type. Sums are taken in f32 (f64 for f64).
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType input = DType::f32;
  DType output = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool packed_b = false;  ///< run() takes for B what Gemm::pack() returned
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  int threads = 1;  ///< 1 for a product called from within a parallel region

  bool operator==(const GemmShape&) const = default;
  bool is_empty() const { return m == 0 || n == 0 || k == 0; }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

struct GemmShapeHash {
  size_t operator()(const GemmShape& shape) const;
};

class Gemm;
/// A function that makes a product, for products that consist of smaller products.
using MakeGemm = std::function<std::unique_ptr<Gemm>(const GemmShape&)>;

/// A matrix product that is ready to run: oneDNN's primitive for this shape, or plain loops for
/// f64, for empty shapes, for Kernels::plain and for builds without oneDNN.
class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Returns the scratch bytes that one run needs, at most what gemm_workspace_bytes() plans.
  virtual int64_t workspace_bytes() const = 0;
  /// Returns the bytes that pack() writes, at most what gemm_packed_bytes() plans. 0 if the product
  /// reads B in its given layout.
  virtual int64_t packed_bytes() const { return 0; }
  /// Returns whether the product runs with less memory than the library asked for, because the
  /// plan's estimate was too low. Then the product is cut into products of fewer rows, or reads B
  /// in its given layout. The result is right, but takes longer.
  virtual bool reduced() const { return false; }
  /// Copies B to `memory`, in the layout that the product reads fastest, if the shape has packed_b.
  /// `memory` has packed_bytes(). Returns the operand that run() takes for B: `memory`, or `b` if
  /// nothing is copied. Runs on the product's threads. A copy pays off if B is used for several
  /// hundred rows of A.
  virtual const void* pack(const void* b, std::byte* memory) const;
  /// Runs the product. Several threads may do so at once, each with its own workspace.
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

/// Returns the product of this shape from the runtime's cache. The first call makes the product,
/// which takes 0.2 to 3 ms. Must not be called within a parallel region, but the product may run
/// there. m, n and k may be zero.
const Gemm& prepare_gemm(Runtime& runtime, const GemmShape& shape);

/// A product whose B stays the same over several runs. If a copy pays off for the rows of A, B is
/// copied once to the caller's memory, in the layout that the product reads fastest.
class PackedGemm {
 public:
  /// `rows` is the number of rows of A in all runs together. No memory is taken yet.
  PackedGemm(Runtime& runtime, GemmShape shape, int64_t rows);

  /// Returns the bytes of memory for pack() and run().
  int64_t workspace_bytes() const { return packed_bytes_ + scratch_bytes_; }
  /// Returns the same bytes for a product that does not exist yet.
  static int64_t workspace_bytes(const Target& target, GemmShape shape, int64_t rows);
  /// Copies B, if that pays off, to `workspace`, which belongs to this object until its last run.
  void pack(const void* b, std::byte* workspace);
  void run(const void* a, void* c) const;

 private:
  int64_t packed_bytes_;
  int64_t scratch_bytes_;
  const Gemm* gemm_;
  const void* b_ = nullptr;
  std::byte* scratch_ = nullptr;
};

// The kinds of products, of which prepare_gemm() chooses one.

/// Returns a product by its definition: a triple loop in the accumulation type, parallel over rows.
std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape);

/// Returns oneDNN's product within gemm_workspace_bytes(), widened or cut into parts where it must
/// be. Returns null without oneDNN. It is fastest if no more threads run it than the target has.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, const Target& target);

/// Returns a product made of two of `make`'s products, each with half of the rows of C. B is read
/// in its given layout. `shape` needs two rows and explicit leading dimensions.
std::unique_ptr<Gemm> make_split_gemm(GemmShape shape, const MakeGemm& make);

/// Returns a product of bf16 that is computed in f32 (see widens()). Parts of the operands are
/// widened to f32 and multiplied by `make`'s products. As with bf16, the sums are f32 sums of exact
/// products. Some megabytes are widened at a time, whatever m and n are.
std::unique_ptr<Gemm> make_widened_gemm(const GemmShape& shape, const MakeGemm& make);

/// Returns the scratch bytes of make_widened_gemm()'s product; `part_bytes` those of one of f32.
int64_t widened_workspace_bytes(const GemmShape& shape,
                                const std::function<int64_t(const GemmShape&)>& part_bytes);

/// A product, and how often it ran.
struct GemmRuns {
  GemmShape shape;  ///< with explicit leading dimensions
  int64_t runs = 0;

  bool operator==(const GemmRuns&) const = default;
};

/// Counts a product that is enqueued on a device, for the runtime's counter if it has one.
void count_issued(Runtime& runtime, const GemmShape& shape);

/// Counts the runs of a runtime's products while the counter exists. So it shows which products the
/// operations really ran, which depends on the tokens of each expert and on the tiles that masks
/// leave. On a device it counts the products that are enqueued, but not grouped products, whose
/// sizes only the device knows. A runtime has at most one counter at a time.
class GemmCounter {
 public:
  explicit GemmCounter(Runtime& runtime);
  ~GemmCounter();
  GemmCounter(const GemmCounter&) = delete;
  GemmCounter& operator=(const GemmCounter&) = delete;

  /// Returns the products that ran since the last call. Those with the most FLOPs in all come
  /// first. Must not be called while a product runs.
  std::vector<GemmRuns> take();

 private:
  friend const Gemm& prepare_gemm(Runtime& runtime, const GemmShape& shape);
  static void count(Gemm& product);

  Runtime& runtime_;
};

}  // namespace tessera
