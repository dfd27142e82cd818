#include "tensor/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }

/// The definition: of the two neighbours in bf16 the nearer one, of equally near ones the even one.
/// A value past the largest bf16 rounds as if the next power of two were in range.
uint16_t reference_rounding(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const auto below = static_cast<uint16_t>(word >> 16);
  const auto as_double = [](uint32_t bits) {
    if ((bits & 0x7fffu) == 0x7f80u)
      return std::copysign(std::ldexp(1.0, 128), bits & 0x8000u ? -1.0 : 1.0);
    return static_cast<double>(bits_to_float(bits << 16));
  };
  const double under = std::abs(static_cast<double>(value) - as_double(below));
  const double over = std::abs(as_double(below + 1u) - static_cast<double>(value));
  if (under == 0 || under < over) return below;
  if (over < under) return static_cast<uint16_t>(below + 1);
  return below % 2 == 0 ? below : static_cast<uint16_t>(below + 1);
}

RC_GTEST_PROP(BFloat16, RoundsToNearestTiesToEven, ()) {
  const uint32_t upper = *rc::gen::inRange<uint32_t>(0, 1u << 16);
  // The lower half decides the rounding; its critical values are drawn often.
  const uint32_t lower =
      *rc::gen::oneOf(rc::gen::element<uint32_t>(0, 1, 0x7fff, 0x8000, 0x8001, 0xffff),
                      rc::gen::inRange<uint32_t>(0, 1u << 16));
  const float value = bits_to_float((upper << 16) | lower);
  RC_PRE(std::isfinite(value));
  RC_ASSERT(BFloat16(value).bits == reference_rounding(value));
  RC_ASSERT(BFloat16::of_number(value).bits == reference_rounding(value));
}

TEST(BFloat16, EveryValueSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < (1u << 16); ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide))));
    } else {
      EXPECT_EQ(BFloat16(wide).bits, bits);
    }
  }
}

TEST(BFloat16, TiesGoToEven) {
  EXPECT_EQ(BFloat16(bits_to_float(0x3f808000)).bits, 0x3f80);  // 1 + 1/256, between odd and even
  EXPECT_EQ(BFloat16(bits_to_float(0x3f818000)).bits, 0x3f82);
  EXPECT_EQ(BFloat16(bits_to_float(0xbf818000)).bits, 0xbf82);
}

TEST(BFloat16, KeepsInfinitiesAndNotANumber) {
  EXPECT_EQ(static_cast<float>(BFloat16(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(BFloat16(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), kInfinity);
  // These would round to infinity or to zero if they were treated as numbers.
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0xff808000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(bits_to_float(bits))))) << std::hex << bits;
  }
}

TEST(BFloat16, KeepsTheSignOfZeroAndSubnormals) {
  EXPECT_EQ(BFloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(BFloat16(bits_to_float(0x00010000)).bits, 0x0001);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Float16, EveryFiniteNumberComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const bool nan = (bits & 0x7fffu) > 0x7c00u;
    ASSERT_EQ(std::isnan(value), nan) << bits;
    if (!nan) {
      ASSERT_EQ(Float16(value).bits, bits);
    }
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::nanf("")))));
}

TEST(Float16, HasTheValuesOfTheFormat) {
  const auto value = [](uint16_t bits) {
    Float16 half;
    half.bits = bits;
    return static_cast<float>(half);
  };
  EXPECT_EQ(value(0x3c00), 1.0F);
  EXPECT_EQ(value(0xc000), -2.0F);
  EXPECT_EQ(value(0x3555), 0x1.554p-2F);
  EXPECT_EQ(value(0x7bff), 65504.0F);
  EXPECT_EQ(value(0x0001), 0x1p-24F);
  EXPECT_EQ(value(0x03ff), 0x3ffp-24F);
  EXPECT_EQ(value(0x0400), 0x1p-14F);
  EXPECT_EQ(value(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(Float16, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    Float16 low;
    low.bits = static_cast<uint16_t>(bits);
    // The number after the largest is where the format would go on: 65536.
    Float16 high;
    high.bits = static_cast<uint16_t>(bits + 1);
    const double upper = bits == 0x7bff ? 65536.0 : static_cast<float>(high);
    const auto middle = static_cast<float>((static_cast<float>(low) + upper) / 2);
    const uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(Float16(middle).bits, even);
    ASSERT_EQ(Float16(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(Float16(std::nextafter(middle, 1e9F)).bits, bits + 1);
    ASSERT_EQ(Float16(-middle).bits, even | 0x8000u);
  }
  EXPECT_EQ(Float16(1e30F).bits, 0x7c00);
}

TEST(DType, WiderTypesHoldShorterOnesExactly) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    EXPECT_TRUE(holds_exactly(dtype, dtype));
    EXPECT_TRUE(holds_exactly(DType::f64, dtype));
    EXPECT_EQ(holds_exactly(DType::f32, dtype), dtype != DType::f64);
  }
  EXPECT_FALSE(holds_exactly(DType::bf16, DType::f16));
  EXPECT_FALSE(holds_exactly(DType::f16, DType::bf16));
  EXPECT_FALSE(holds_exactly(DType::f64, DType::i32));
}

TEST(DType, NamesAndSizesAgreeWithTheTypes) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::u16, DType::u8}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_size(dtype_of<double>), static_cast<int64_t>(sizeof(double)));
  EXPECT_EQ(dtype_size(dtype_of<float>), static_cast<int64_t>(sizeof(float)));
  EXPECT_EQ(dtype_size(dtype_of<BFloat16>), static_cast<int64_t>(sizeof(BFloat16)));
  EXPECT_EQ(dtype_size(dtype_of<int32_t>), static_cast<int64_t>(sizeof(int32_t)));
  EXPECT_EQ(dtype_size(dtype_of<uint16_t>), static_cast<int64_t>(sizeof(uint16_t)));
  EXPECT_EQ(dtype_size(dtype_of<uint8_t>), static_cast<int64_t>(sizeof(uint8_t)));
  EXPECT_EQ(dtype_size(dtype_of<Float16>), static_cast<int64_t>(sizeof(Float16)));
  EXPECT_THROW(dtype_from_name("f8"), Error);
}

TEST(DType, SumsAreWiderThanTheirTerms) {
  EXPECT_EQ(accumulation_dtype(DType::bf16), DType::f32);
  EXPECT_EQ(accumulation_dtype(DType::f32), DType::f32);
  EXPECT_EQ(accumulation_dtype(DType::f64), DType::f64);
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_FALSE(is_floating(DType::i32));
}

}  // namespace
}  // namespace tessera
