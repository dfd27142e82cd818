#include <vector>

#include <gtest/gtest.h>

#include "program/operation.h"

namespace tessera {
namespace {

double flops(const char* labels, const std::vector<Shape>& operands) {
  double flops = 0;
  for (const MatrixProduct& product : matrix_products(parse_labels(labels), operands)) {
    flops += product.flops();
  }
  return flops;
}

TEST(MatrixProducts, AreTwoForEachMultiplyAdd) {
  EXPECT_EQ(flops("~t i, ~o i -> t o", {{3, 5}, {7, 5}}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("~t i, ~o i + ~o -> t o", {{3, 5}, {7, 5}, {7}}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("~t o, t i -> += o i", {{3, 7}, {3, 5}}), 2 * 3 * 5 * 7);
}

TEST(MatrixProducts, OfSeveralMatricesAreAllCounted) {
  EXPECT_EQ(flops("~t i, p i, q i -> t p, t q", {{3, 5}, {7, 5}, {11, 5}}), 2 * 3 * 5 * (7 + 11));
  EXPECT_EQ(flops("#0 ~t p, #2 p i + #1 ~t q, #3 q i -> t i", {{3, 7}, {3, 11}, {7, 5}, {11, 5}}),
            2 * 3 * 5 * (7 + 11));
}

TEST(MatrixProducts, OfExpertsCountEachRowOnce) {
  EXPECT_EQ(flops("(E r) i, ~E o i, f! -> (E r) o", {{12, 5}, {4, 7, 5}, {5}}), 2 * 12 * 5 * 7);
}

/// Returns the only product of the labels as {rows, columns, terms, count, ends of both}.
std::vector<double> product(const char* labels, const std::vector<Shape>& operands) {
  const auto products = matrix_products(parse_labels(labels), operands);
  if (products.size() != 1) return {};
  const MatrixProduct& only = products.front();
  return {only.rows,
          only.columns,
          only.terms,
          only.count,
          only.first_ends ? 1.0 : 0.0,
          only.second_ends ? 1.0 : 0.0};
}

TEST(MatrixProducts, HaveTheShapesAndTheLayoutsOfTheThreeOfALinearLayer) {
  using Numbers = std::vector<double>;
  EXPECT_EQ(product("~t i, ~o i -> t o", {{3, 5}, {7, 5}}), (Numbers{3, 7, 5, 1, 1, 1}));
  EXPECT_EQ(product("~t o, o i -> t i", {{3, 7}, {7, 5}}), (Numbers{3, 5, 7, 1, 1, 0}));
  EXPECT_EQ(product("~t o, t i -> += o i", {{3, 7}, {3, 5}}), (Numbers{7, 5, 3, 1, 0, 0}));
  EXPECT_EQ(product("(E r) i, ~E o i, f! -> (E r) o", {{12, 5}, {4, 7, 5}, {5}}),
            (Numbers{12, 7, 5, 1, 1, 1}));
  EXPECT_EQ(product("h t i, h o i -> h t o", {{2, 3, 5}, {2, 7, 5}}), (Numbers{3, 7, 5, 2, 1, 1}));
}

TEST(MatrixProducts, AreNotElementwiseProductsSumsOrLookups) {
  EXPECT_EQ(flops("t c!, c! -> t c", {{3, 5}, {5}}), 0);
  EXPECT_EQ(flops("t c, t c -> c", {{3, 5}, {3, 5}}), 0);
  EXPECT_EQ(flops("~v c, t -> t c", {{9, 5}, {3}}), 0);
  EXPECT_EQ(flops("~t c + ~t c -> t c", {{3, 5}, {3, 5}}), 0);
  EXPECT_EQ(flops("~, ?n E -> n E", {{}}), 0);
}

}  // namespace
}  // namespace tessera
