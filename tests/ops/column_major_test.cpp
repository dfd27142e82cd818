#include "ops/gemm/column_major.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

/// A product as a library of column-major matrices defines it.
std::vector<double> library_product(const ColumnMajorProduct& product, const std::vector<double>& a,
                                    const std::vector<double>& b, std::vector<double> d,
                                    double beta) {
  const auto element = [](const std::vector<double>& values, const ColumnMajorMatrix& matrix,
                          int64_t row, int64_t column) {
    if (matrix.transpose) std::swap(row, column);
    EXPECT_LT(row, matrix.rows);
    EXPECT_LT(column, matrix.columns);
    return values.at(static_cast<size_t>(column * matrix.leading + row));
  };
  const int64_t terms = product.a.transpose ? product.a.rows : product.a.columns;
  EXPECT_EQ(terms, product.b.transpose ? product.b.columns : product.b.rows);
  EXPECT_FALSE(product.d.transpose);
  for (int64_t row = 0; row < product.d.rows; ++row) {
    for (int64_t column = 0; column < product.d.columns; ++column) {
      double& result = d.at(static_cast<size_t>(column * product.d.leading + row));
      result *= beta;
      for (int64_t i = 0; i < terms; ++i) {
        result += element(a, product.a, row, i) * element(b, product.b, i, column);
      }
    }
  }
  return d;
}

/// The same product by the definition of GemmShape.
std::vector<double> row_major_product(const GemmShape& shape, const std::vector<double>& a,
                                      const std::vector<double>& b, std::vector<double> c) {
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < shape.k; ++l) {
        sum +=
            a.at(static_cast<size_t>(shape.transpose_a ? l * shape.lda + i : i * shape.lda + l)) *
            b.at(static_cast<size_t>(shape.transpose_b ? j * shape.ldb + l : l * shape.ldb + j));
      }
      double& result = c.at(static_cast<size_t>(i * shape.ldc + j));
      result = shape.accumulate ? result + sum : sum;
    }
  }
  return c;
}

/// Whole numbers, so that sums are exact.
std::vector<double> numbers(int64_t count) {
  return *rc::gen::container<std::vector<double>>(
      static_cast<size_t>(count),
      rc::gen::map(rc::gen::inRange(-9, 10), [](int value) { return static_cast<double>(value); }));
}

RC_GTEST_PROP(ColumnMajor, IsTheSameProduct, ()) {
  GemmShape shape{.m = *rc::gen::inRange<int64_t>(1, 7),
                  .n = *rc::gen::inRange<int64_t>(1, 7),
                  .k = *rc::gen::inRange<int64_t>(1, 7),
                  .transpose_a = *rc::gen::arbitrary<bool>(),
                  .transpose_b = *rc::gen::arbitrary<bool>(),
                  .accumulate = *rc::gen::arbitrary<bool>()};
  const auto gap = [] { return *rc::gen::inRange<int64_t>(0, 4); };
  shape.lda = (shape.transpose_a ? shape.m : shape.k) + gap();
  shape.ldb = (shape.transpose_b ? shape.k : shape.n) + gap();
  shape.ldc = shape.n + gap();
  const auto a = numbers((shape.transpose_a ? shape.k : shape.m) * shape.lda);
  const auto b = numbers((shape.transpose_b ? shape.n : shape.k) * shape.ldb);
  const auto c = numbers(shape.m * shape.ldc);
  const auto expected = row_major_product(shape, a, b, c);

  const ColumnMajorProduct product = column_major(shape);
  const double beta = shape.accumulate ? 1 : 0;
  std::vector<double> actual = library_product(product, b, a, c, beta);
  RC_ASSERT(actual == expected);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(ColumnMajor, TakesLeadingDimensionsWithoutGapsAsGiven) {
  const GemmShape shape{.m = 5, .n = 3, .k = 2, .transpose_b = true};
  EXPECT_EQ(
      column_major(shape),
      (ColumnMajorProduct{.a = {2, 3, 2, true}, .b = {2, 5, 2, false}, .d = {3, 5, 3, false}}));
}

}  // namespace
}  // namespace tessera
