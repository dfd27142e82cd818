#include "base/transpose.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/bfloat16.h"

namespace tessera {
namespace {

template <typename T>
class TransposeOf : public ::testing::Test {};

using Types = ::testing::Types<BFloat16, float, double>;
TYPED_TEST_SUITE(TransposeOf, Types);

/// Sizes with and without whole vectors, rows that lie apart, and nothing written beside.
TYPED_TEST(TransposeOf, EverySizeWritesItsEntriesAndNoOthers) {
  const auto number = [](int64_t i) { return static_cast<TypeParam>(static_cast<float>(i % 251)); };
  const auto untouched = static_cast<TypeParam>(-1.0F);
  for (int64_t rows = 0; rows < 20; ++rows) {
    for (int64_t columns = 0; columns < 20; ++columns) {
      const int64_t from_stride = columns + 3;
      const int64_t to_stride = rows + 5;
      std::vector<TypeParam> from(static_cast<size_t>(rows * from_stride));
      for (size_t i = 0; i < from.size(); ++i) from[i] = number(static_cast<int64_t>(i));
      std::vector<TypeParam> to(static_cast<size_t>(columns * to_stride), untouched);
      transpose(rows, columns, from.data(), from_stride, to.data(), to_stride);
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < to_stride; ++i) {
          const TypeParam expected = i < rows ? number(i * from_stride + j) : untouched;
          ASSERT_EQ(static_cast<float>(to[static_cast<size_t>(j * to_stride + i)]),
                    static_cast<float>(expected))
              << rows << " x " << columns << ": " << j << ", " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
