#include <vector>

#include <gtest/gtest.h>

#include "program/operation.h"

namespace tessera {
namespace {

double flops(const char* labels, const std::vector<Shape>& operands) {
  return matrix_product_flops(parse_labels(labels), operands);
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

TEST(MatrixProducts, AreNotElementwiseProductsSumsOrLookups) {
  EXPECT_EQ(flops("t c!, c! -> t c", {{3, 5}, {5}}), 0);
  EXPECT_EQ(flops("t c, t c -> c", {{3, 5}, {3, 5}}), 0);
  EXPECT_EQ(flops("~v c, t -> t c", {{9, 5}, {3}}), 0);
  EXPECT_EQ(flops("~t c + ~t c -> t c", {{3, 5}, {3, 5}}), 0);
  EXPECT_EQ(flops("~, ?n E -> n E", {{}}), 0);
}

}  // namespace
}  // namespace tessera
