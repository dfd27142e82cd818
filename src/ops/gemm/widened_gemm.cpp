#include "ops/gemm/widened_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/support.h"
#include "tensor/memory_layout.h"

namespace tessera {
namespace {

/// Of one matrix in f32.
constexpr int64_t kPartBytes = int64_t{4} << 20;
/// Of a part of A or columns of one of B: with fewer the product itself would be slow.
constexpr int64_t kFewestWidened = 64;

/// How many rows of A, or columns of B, each of `k` elements, are widened at once.
int64_t part_of(int64_t count, int64_t k) {
  return std::min(count, std::max(kFewestWidened, kPartBytes / static_cast<int64_t>(4 * k)));
}

int64_t float_bytes(int64_t elements) {
  return MemoryLayout::rounded(elements * static_cast<int64_t>(sizeof(float)));
}

/// Rows of `columns` elements, `from_gap` and `to_gap` elements from one to the next.
template <typename From, typename To>
void copy_rows(const From* from, int64_t from_gap, To* to, int64_t to_gap, int64_t rows,
               int64_t columns, int threads) {
  parallel_ranges(threads, rows, row_grain(columns), [=](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const From* source = from + row * from_gap;
      To* target = to + row * to_gap;
      for (int64_t i = 0; i < columns; ++i) target[i] = static_cast<To>(source[i]);
    }
  });
}

class WidenedGemm final : public Gemm {
 public:
  WidenedGemm(const GemmShape& shape,
              const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make)
      : shape_(shape),
        narrows_(shape.output == DType::bf16),
        columns_(part_of(shape.n, shape.k)),
        rows_(part_of(shape.m, narrows_ ? std::max(shape.k, columns_) : shape.k)) {
    const std::array<int64_t, 2> rows{rows_, shape.m % rows_};
    const std::array<int64_t, 2> columns{columns_, shape.n % columns_};
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < columns.size(); ++j) {
        if (rows[i] == 0 || columns[j] == 0) continue;
        products_[i][j] = make(part(rows[i], columns[j]));
        scratch_ = std::max(scratch_, products_[i][j]->workspace_bytes());
      }
    }
  }

  int64_t workspace_bytes() const override {
    return a_bytes() + b_bytes() + c_bytes() + MemoryLayout::rounded(scratch_);
  }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    auto* wide_a = reinterpret_cast<float*>(workspace);
    auto* wide_b = reinterpret_cast<float*>(workspace + a_bytes());
    for (int64_t column = 0; column < shape_.n; column += columns_) {
      const int64_t columns = std::min(columns_, shape_.n - column);
      widen(static_cast<const BFloat16*>(b), shape_.ldb, !shape_.transpose_b, column, columns,
            wide_b);
      for (int64_t row = 0; row < shape_.m; row += rows_) {
        const int64_t rows = std::min(rows_, shape_.m - row);
        if (column == 0 || rows_ < shape_.m) {
          widen(static_cast<const BFloat16*>(a), shape_.lda, shape_.transpose_a, row, rows, wide_a);
        }
        multiply_part(row, rows, column, columns, c, workspace);
      }
    }
  }

 private:
  GemmShape part(int64_t rows, int64_t columns) const {
    GemmShape part = shape_;
    part.m = rows;
    part.n = columns;
    part.input = part.output = DType::f32;
    part.packed_b = false;
    part.lda = shape_.transpose_a ? rows : shape_.k;
    part.ldb = shape_.transpose_b ? shape_.k : columns;
    if (narrows_) part.ldc = columns;
    return part;
  }

  int64_t a_bytes() const { return float_bytes(rows_ * shape_.k); }
  int64_t b_bytes() const { return float_bytes(columns_ * shape_.k); }
  int64_t c_bytes() const { return narrows_ ? float_bytes(rows_ * columns_) : 0; }

  /// Widens `count` of the vectors of k elements that an operand is made of, from the vector
  /// `first` on: its columns as it lies in memory, `across`, or its rows.
  void widen(const BFloat16* operand, int64_t gap, bool across, int64_t first, int64_t count,
             float* to) const {
    if (across) {
      copy_rows(operand + first, gap, to, count, shape_.k, count, shape_.threads);
    } else {
      copy_rows(operand + first * gap, gap, to, shape_.k, count, shape_.k, shape_.threads);
    }
  }

  void multiply_part(int64_t row, int64_t rows, int64_t column, int64_t columns, void* c,
                     std::byte* workspace) const {
    const Gemm& product = *products_[rows < rows_ ? 1 : 0][columns < columns_ ? 1 : 0];
    const int64_t place = row * shape_.ldc + column;
    const std::byte* wide_a = workspace;
    const std::byte* wide_b = workspace + a_bytes();
    std::byte* wide_c = workspace + a_bytes() + b_bytes();
    std::byte* scratch = wide_c + c_bytes();
    if (!narrows_) {
      product.run(wide_a, wide_b, static_cast<float*>(c) + place, scratch);
      return;
    }
    BFloat16* narrow = static_cast<BFloat16*>(c) + place;
    auto* sums = reinterpret_cast<float*>(wide_c);
    if (shape_.accumulate) {
      copy_rows(narrow, shape_.ldc, sums, columns, rows, columns, shape_.threads);
    }
    product.run(wide_a, wide_b, sums, scratch);
    copy_rows(sums, columns, narrow, shape_.ldc, rows, columns, shape_.threads);
  }

  GemmShape shape_;
  bool narrows_;     // what is computed in f32
  int64_t columns_;  // of B, widened at once
  int64_t rows_;     // of A, likewise: of C, too, no more is f32 at once
  /// By whether the part is the rest of the rows, and of the columns.
  std::array<std::array<std::unique_ptr<Gemm>, 2>, 2> products_;
  int64_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_widened_gemm(
    const GemmShape& shape, const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make) {
  TESSERA_CHECK(shape.input == DType::bf16, "a product of {} is not widened",
                dtype_name(shape.input));
  return std::make_unique<WidenedGemm>(shape, make);
}

}  // namespace tessera
