#include "ops/update/orthogonalise.h"

#include <array>
#include <cmath>

#include "base/interleaved_sum.h"
#include "base/transpose.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "ops/update/muon_kernels.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

// run() scales the matrix to the norm 1 and takes the steps. Each step computes A = X Xᵀ, P = a I +
// b A + c A² and then P X, which is the next X (newton_schulz.h). A tall matrix is transposed
// before the steps and after them, so X is [short side, long side].

using OrthogonaliseSize = Orthogonalise::Size;

bool is_tall(const MatrixExtent& extent) { return extent.rows > extent.columns; }
int64_t short_side(const MatrixExtent& extent) { return std::min(extent.rows, extent.columns); }
int64_t long_side(const MatrixExtent& extent) { return std::max(extent.rows, extent.columns); }

SymmetricSize gram_size(const OrthogonaliseSize& size) {
  return {short_side(size.extent), long_side(size.extent), size.dtype, size.threads};
}

SymmetricSize square_size(const OrthogonaliseSize& size) {
  const int64_t n = short_side(size.extent);
  return {n, n, size.dtype, size.threads};
}

GemmShape product_shape(const OrthogonaliseSize& size) {
  const int64_t n = short_side(size.extent);
  return {.m = n,
          .n = long_side(size.extent),
          .k = n,
          .input = size.dtype,
          .output = size.dtype,
          .threads = size.threads};
}

/// The parts of a matrix's workspace, as offsets in bytes.
struct Layout : WorkspaceParts {
  explicit Layout(const OrthogonaliseSize& size) {
    const int64_t element_bytes = dtype_size(size.dtype);
    const int64_t n = short_side(size.extent);
    x = append(size.extent.elements() * element_bytes);
    transposed = append(is_tall(size.extent) ? size.extent.elements() * element_bytes : 0);
    gram = append(n * n * element_bytes);
    polynomial = append(n * n * element_bytes);
    row_sums = append(size.extent.rows * dtype_size(DType::f64));
    scratch = bytes;
  }

  int64_t x, transposed, gram, polynomial, row_sums, scratch;
};

/// Returns the factor that gives a matrix the norm 1: 0 for a matrix of zeros, NaN if an element is
/// NaN. It is computed in f64, in which neither the squares of f32 nor the factor overflow or
/// vanish. The order of additions does not depend on the number of threads.
template <typename T>
double inverse_norm(const OrthogonaliseSize& size, const T* matrix, double* row_sums) {
  const int64_t columns = size.extent.columns;
  parallel_ranges(size.threads, size.extent.rows, row_grain(columns),
                  [=](int64_t begin, int64_t end, int) {
                    for (int64_t row = begin; row < end; ++row) {
                      row_sums[row] = interleaved_sum<double>(columns, [=](int64_t i) {
                        const auto value =
                            static_cast<double>(static_cast<Compute<T>>(matrix[row * columns + i]));
                        return value * value;
                      });
                    }
                  });
  double total = 0;
  for (int64_t row = 0; row < size.extent.rows; ++row) total += row_sums[row];
  return total > 0 ? 1 / std::sqrt(total) : total;
}

/// Returns factor · value. bf16 has no conversions to and from double, so Compute<T> comes between.
template <typename T>
T scaled(double factor, T value) {
  return static_cast<T>(
      static_cast<Compute<T>>(factor * static_cast<double>(static_cast<Compute<T>>(value))));
}

/// Writes target = factor · source. The elements do not depend on each other (ivdep).
template <typename T>
void scaled_copy(int threads, int64_t count, const T* source, double factor, T* target) {
  parallel_ranges(threads, count, 1 << 15, [=](int64_t begin, int64_t end, int) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) target[i] = scaled(factor, source[i]);
  });
}

/// Writes target [columns, rows] = factor · the transposed source [rows, columns], in tiles.
template <typename T>
void scaled_transpose(int threads, int64_t rows, int64_t columns, const T* source, double factor,
                      T* target) {
  constexpr int64_t kTile = 64;
  parallel_items(threads, (columns + kTile - 1) / kTile, [=](int64_t item, int) {
    const int64_t first = item * kTile;
    const int64_t width = std::min(kTile, columns - first);
    std::array<T, kTile * kTile> tile;
    for (int64_t row = 0; row < rows; row += kTile) {
      const int64_t height = std::min(kTile, rows - row);
      for (int64_t i = 0; i < height; ++i) {
        const T* const entries = source + (row + i) * columns + first;
        for (int64_t j = 0; j < width; ++j) tile[i * kTile + j] = scaled(factor, entries[j]);
      }
      transpose(height, width, tile.data(), kTile, target + first * rows + row, rows);
    }
  });
}

}  // namespace

Orthogonalise::Orthogonalise(Runtime& runtime, const Size& size)
    : size_(size),
      gram_(runtime, gram_size(size)),
      square_(runtime, square_size(size)),
      product_(&prepare_gemm(runtime, product_shape(size))) {}

int64_t Orthogonalise::workspace_bytes(const Target& target, const Size& size) {
  return Layout(size).bytes +
         aligned_bytes(std::max({SymmetricProduct::workspace_bytes(target, gram_size(size)),
                                 SymmetricProduct::workspace_bytes(target, square_size(size)),
                                 gemm_workspace_bytes(target, product_shape(size))}));
}

void Orthogonalise::run(const void* in, void* out, std::byte* workspace) const {
  dispatch_floating(size_.dtype, [&]<typename T>(T) {
    run_in(static_cast<const T*>(in), static_cast<T*>(out), workspace);
  });
}

template <typename T>
void Orthogonalise::run_in(const T* in, T* out, std::byte* workspace) const {
  const auto& [extent, dtype, steps, threads] = size_;
  const Layout layout(size_);
  const double factor =
      inverse_norm(size_, in, reinterpret_cast<double*>(workspace + layout.row_sums));
  // X alternates between two buffers. To end in the first, an even number of steps begins there.
  T* const buffers[] = {is_tall(extent) ? reinterpret_cast<T*>(workspace + layout.transposed) : out,
                        reinterpret_cast<T*>(workspace + layout.x)};
  auto current = static_cast<size_t>(steps % 2);
  if (is_tall(extent)) {
    scaled_transpose(threads, extent.rows, extent.columns, in, factor, buffers[current]);
  } else {
    scaled_copy(threads, extent.elements(), in, factor, buffers[current]);
  }
  for (int64_t i = 0; i < steps; ++i, current = 1 - current) {
    step(buffers[current], buffers[1 - current], workspace);
  }
  if (!is_tall(extent)) return;
  scaled_transpose(threads, extent.columns, extent.rows, buffers[0], 1, out);
}

template <typename T>
void Orthogonalise::step(const T* x, T* next, std::byte* workspace) const {
  using Wide = Compute<T>;
  const Layout layout(size_);
  auto* const gram = reinterpret_cast<T*>(workspace + layout.gram);
  auto* const polynomial = reinterpret_cast<T*>(workspace + layout.polynomial);
  std::byte* const scratch = workspace + layout.scratch;
  const int64_t n = short_side(size_.extent);
  // gram = A. polynomial = A A at first, and then P, element by element. next = P X.
  gram_.run(x, gram, scratch);
  square_.run(gram, polynomial, scratch, [=](int64_t i, int64_t j) {
    const auto a = i == j ? static_cast<Wide>(kNewtonSchulzA) : Wide{0};
    return static_cast<T>(
        a + static_cast<Wide>(kNewtonSchulzB) * static_cast<Wide>(gram[i * n + j]) +
        static_cast<Wide>(kNewtonSchulzC) * static_cast<Wide>(polynomial[i * n + j]));
  });
  product_->run(polynomial, x, next, scratch);
}

}  // namespace tessera
