#include <algorithm>
#include <array>

#include "ops/gemm/gemm.h"
#include "ops/support.h"
#include "tensor/alignment.h"

// Products of bf16 that the processor or oneDNN cannot compute (see widens()). WidenedParts cuts
// the operands into parts, which WidenedGemm converts to f32 in scratch memory and multiplies. The
// last part of rows or columns may be smaller: there are up to four shapes of products.

namespace tessera {
namespace {

/// The most bytes of one widened matrix in f32, unless kMinWidened requires more.
constexpr int64_t kPartBytes = int64_t{4} << 20;
/// The fewest rows of A, or columns of B, in a part. With fewer, the product itself would be slow.
constexpr int64_t kMinWidened = 64;

/// Returns how many of `count` rows of A, or columns of B, are widened at once. Each has `k`
/// elements.
int64_t widened_at_once(int64_t count, int64_t k) {
  return std::min(count, std::max(kMinWidened, kPartBytes / static_cast<int64_t>(4 * k)));
}

int64_t float_bytes(int64_t elements) {
  return aligned_bytes(elements * static_cast<int64_t>(sizeof(float)));
}

/// Copies rows of `columns` elements and converts them. Rows are `from_stride` and `to_stride`
/// elements apart.
template <typename From, typename To>
void copy_rows(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t rows,
               int64_t columns, int threads) {
  parallel_each(threads, rows, row_grain(columns), [=](int64_t row) {
    const From* source = from + row * from_stride;
    To* target = to + row * to_stride;
    for (int64_t i = 0; i < columns; ++i) target[i] = static_cast<To>(source[i]);
  });
}

/// The parts that a product is cut into, and the scratch memory that they share.
class WidenedParts {
 public:
  explicit WidenedParts(const GemmShape& shape)
      : narrows(shape.output == DType::bf16),
        columns(widened_at_once(shape.n, shape.k)),
        rows(widened_at_once(shape.m, narrows ? std::max(shape.k, columns) : shape.k)),
        shape_(shape) {}

  /// Calls visit(i, j, product) for each shape of product in f32. i is 0 for whole parts of the
  /// rows, and 1 for the rows that are left over. j is the same for the columns.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const std::array<int64_t, 2> row_counts{rows, shape_.m % rows};
    const std::array<int64_t, 2> column_counts{columns, shape_.n % columns};
    for (size_t i = 0; i < row_counts.size(); ++i) {
      for (size_t j = 0; j < column_counts.size(); ++j) {
        if (row_counts[i] == 0 || column_counts[j] == 0) continue;
        visit(i, j, part(row_counts[i], column_counts[j]));
      }
    }
  }

  int64_t a_bytes() const { return float_bytes(rows * shape_.k); }
  int64_t b_bytes() const { return float_bytes(columns * shape_.k); }
  int64_t c_bytes() const { return narrows ? float_bytes(rows * columns) : 0; }
  /// Returns the scratch bytes, with `scratch` bytes for the product that needs the most.
  int64_t bytes(int64_t scratch) const {
    return a_bytes() + b_bytes() + c_bytes() + aligned_bytes(scratch);
  }

  bool narrows;     ///< true if results are computed in f32 and rounded to bf16
  int64_t columns;  ///< columns of B that are widened at once
  int64_t rows;     ///< rows of A that are widened at once, and rows of C that are in f32 at once

 private:
  GemmShape part(int64_t part_rows, int64_t part_columns) const {
    GemmShape part = shape_;
    part.m = part_rows;
    part.n = part_columns;
    part.input = part.output = DType::f32;
    part.packed_b = false;
    part.lda = shape_.transpose_a ? part_rows : shape_.k;
    part.ldb = shape_.transpose_b ? shape_.k : part_columns;
    if (narrows) part.ldc = part_columns;
    return part;
  }

  GemmShape shape_;
};

/// A product that widens some columns of B and multiplies them by all rows of A, of which it widens
/// some at a time; then the next columns.
class WidenedGemm final : public Gemm {
 public:
  WidenedGemm(const GemmShape& shape, const MakeGemm& make) : shape_(shape), parts_(shape) {
    parts_.for_each([&](size_t i, size_t j, const GemmShape& part) {
      products_[i][j] = make(part);
      scratch_ = std::max(scratch_, products_[i][j]->workspace_bytes());
    });
  }

  int64_t workspace_bytes() const override { return parts_.bytes(scratch_); }

  bool reduced() const override {
    return std::ranges::any_of(products_, [](const auto& row) {
      return std::ranges::any_of(row, [](const auto& part) { return part && part->reduced(); });
    });
  }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    auto* wide_a = reinterpret_cast<float*>(workspace);
    auto* wide_b = reinterpret_cast<float*>(workspace + parts_.a_bytes());
    for (int64_t column = 0; column < shape_.n; column += parts_.columns) {
      const int64_t columns = std::min(parts_.columns, shape_.n - column);
      widen(static_cast<const BFloat16*>(b), shape_.ldb, !shape_.transpose_b, column, columns,
            wide_b);
      for (int64_t row = 0; row < shape_.m; row += parts_.rows) {
        const int64_t rows = std::min(parts_.rows, shape_.m - row);
        // If all rows of A fit at once, they are widened once, with the first columns.
        if (column == 0 || parts_.rows < shape_.m) {
          widen(static_cast<const BFloat16*>(a), shape_.lda, shape_.transpose_a, row, rows, wide_a);
        }
        multiply_part(row, rows, column, columns, c, workspace);
      }
    }
  }

 private:
  /// Widens `count` rows of A or columns of B, vectors of k elements, from index `first` on. In
  /// memory they are columns of the operand if `across` is true, otherwise rows.
  void widen(const BFloat16* operand, int64_t stride, bool across, int64_t first, int64_t count,
             float* to) const {
    if (across) {
      copy_rows(operand + first, stride, to, count, shape_.k, count, shape_.threads);
    } else {
      copy_rows(operand + first * stride, stride, to, shape_.k, count, shape_.k, shape_.threads);
    }
  }

  void multiply_part(int64_t row, int64_t rows, int64_t column, int64_t columns, void* c,
                     std::byte* workspace) const {
    const Gemm& product = *products_[rows < parts_.rows ? 1 : 0][columns < parts_.columns ? 1 : 0];
    const int64_t offset = row * shape_.ldc + column;
    const std::byte* wide_a = workspace;
    const std::byte* wide_b = workspace + parts_.a_bytes();
    std::byte* wide_c = workspace + parts_.a_bytes() + parts_.b_bytes();
    std::byte* scratch = wide_c + parts_.c_bytes();
    if (!parts_.narrows) {
      product.run(wide_a, wide_b, static_cast<float*>(c) + offset, scratch);
      return;
    }
    BFloat16* narrow = static_cast<BFloat16*>(c) + offset;
    auto* sums = reinterpret_cast<float*>(wide_c);
    if (shape_.accumulate) {
      copy_rows(narrow, shape_.ldc, sums, columns, rows, columns, shape_.threads);
    }
    product.run(wide_a, wide_b, sums, scratch);
    copy_rows(sums, columns, narrow, shape_.ldc, rows, columns, shape_.threads);
  }

  GemmShape shape_;
  WidenedParts parts_;
  /// Indexed by i and j of WidenedParts::for_each().
  std::array<std::array<std::unique_ptr<Gemm>, 2>, 2> products_;
  int64_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_widened_gemm(const GemmShape& shape, const MakeGemm& make) {
  TESSERA_CHECK(shape.input == DType::bf16, "a product of {} is not widened",
                dtype_name(shape.input));
  return std::make_unique<WidenedGemm>(shape, make);
}

int64_t widened_workspace_bytes(const GemmShape& shape,
                                const std::function<int64_t(const GemmShape&)>& part_bytes) {
  const WidenedParts parts(shape);
  int64_t scratch = 0;
  parts.for_each([&](size_t, size_t, const GemmShape& part) {
    scratch = std::max(scratch, part_bytes(part));
  });
  return parts.bytes(scratch);
}

}  // namespace tessera
