#include "ops/collective/quantise.h"

#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/denormals.h"
#include "quantise_run.h"
#include "support/thread_counts.h"

namespace tessera::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLeastNormal = 0x1p-126;

int largest_of(QuantisedType type) { return type == QuantisedType::int8 ? 127 : 7; }

/// The integers and scales of a piece, read by the description in the header alone.
struct ReadPiece {
  std::vector<int> integers;
  std::vector<float> scales;

  ReadPiece(const Bytes& bytes, const QuantisedFormat& format, int64_t elements) {
    for (int64_t i = 0; i < elements; ++i) {
      if (format.type == QuantisedType::int8) {
        integers.push_back(static_cast<int8_t>(bytes[static_cast<size_t>(i)]));
      } else {
        const int byte = bytes[static_cast<size_t>(i / 2)];
        const int half = i % 2 == 0 ? byte / 16 : byte % 16;
        integers.push_back(half < 8 ? half : half - 16);
      }
    }
    const int64_t integer_bytes =
        format.type == QuantisedType::int8 ? elements : (elements + 1) / 2;
    const int64_t blocks = (elements + format.block - 1) / format.block;
    size_t at = static_cast<size_t>((integer_bytes + 3) / 4 * 4);
    for (int64_t i = 0; i < blocks; ++i, at += 4) {
      uint32_t bits = 0;
      for (size_t byte = 0; byte < 4; ++byte) bits |= uint32_t{bytes[at + byte]} << (8 * byte);
      scales.push_back(std::bit_cast<float>(bits));
    }
    EXPECT_EQ(bytes.size(), (at + 15) / 16 * 16);
    const auto is_zero = [](unsigned char byte) { return byte == 0; };
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), is_zero));
  }
};

std::vector<float> floats_of(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

Tensor float_tensor(const std::vector<float>& values) {
  Tensor tensor({static_cast<int64_t>(values.size())}, DType::f32);
  std::ranges::copy(values, tensor.data<float>());
  return tensor;
}

TEST(QuantisedBytes, AreTheIntegersAndTheScalesInMultiplesOf16) {
  const QuantisedFormat int8{QuantisedType::int8, 256}, int4{QuantisedType::int4, 256};
  EXPECT_EQ(quantised_bytes(int8, 0), 0);
  EXPECT_EQ(quantised_bytes(int8, 1), 16);  // 1, 3 of zeros, 4 of a scale
  EXPECT_EQ(quantised_bytes(int8, 12), 16);
  EXPECT_EQ(quantised_bytes(int8, 13), 32);               // 13, 3 of zeros, 4 of a scale
  EXPECT_EQ(quantised_bytes(int8, 1024), 1024 + 16);      // 4 scales
  EXPECT_EQ(quantised_bytes(int8, 1025), 1028 + 20 + 8);  // 5 scales
  EXPECT_EQ(quantised_bytes(int4, 1024), 512 + 16);
  EXPECT_EQ(quantised_bytes(int4, 23), 16);
  EXPECT_EQ(quantised_bytes(int4, 25), 32);
  EXPECT_EQ(quantised_bytes({QuantisedType::int8, 1}, 16), 16 + 64);
}

RC_GTEST_PROP(Quantise, RestoresElementsWithinHalfAScale, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  const Tensor values = numbers_of_all_sizes(elements, dtype, seed);
  QuantiseRun run(format, {.kernels = *rc::gen::element(Kernels::plain, Kernels::fast)});
  const Bytes bytes = run.quantise(values);
  const ReadPiece piece(bytes, format, elements);
  const std::vector<float> restored = floats_of(run.dequantise(bytes, elements, DType::f32));
  const Tensor x({elements}, DType::f32);
  convert(values, x);
  const int largest = largest_of(format.type);
  // Three roundings to f32, each of `largest` steps at most.
  const double step = 0.5 + 3 * largest * 0x1p-24;
  for (int64_t begin = 0; begin < elements; begin += format.block) {
    const int64_t end = std::min(elements, begin + format.block);
    const double scale = piece.scales[static_cast<size_t>(begin / format.block)];
    double m = 0;
    int reached = 0;
    for (int64_t i = begin; i < end; ++i) {
      m = std::max(m, std::abs(double{x.data<float>()[i]}));
      reached = std::max(reached, std::abs(piece.integers[static_cast<size_t>(i)]));
    }
    const bool lost = m < largest * kLeastNormal;
    RC_ASSERT(reached == (lost ? 0 : largest));
    if (lost) RC_ASSERT(scale == 1.0);
    if (!lost) RC_ASSERT(std::abs(scale * largest / m - 1) < 0x1p-22);
    for (int64_t i = begin; i < end; ++i) {
      const double value = x.data<float>()[i];
      const double difference = std::abs(value - restored[static_cast<size_t>(i)]);
      if (lost || std::abs(value) < kLeastNormal) {
        RC_ASSERT(restored[static_cast<size_t>(i)] == 0.0f);
      } else {
        RC_ASSERT(difference <= step * scale);
      }
    }
  }
}

RC_GTEST_PROP(Quantise, NegatesTheIntegersOfNegatedElements, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const Tensor values = numbers_of_all_sizes(elements, DType::f32, 4);
  const Tensor negated({elements}, DType::f32);
  for (int64_t i = 0; i < elements; ++i) negated.data<float>()[i] = -values.data<float>()[i];
  QuantiseRun run(format, {});
  const ReadPiece piece(run.quantise(values), format, elements);
  const ReadPiece other(run.quantise(negated), format, elements);
  for (size_t i = 0; i < piece.integers.size(); ++i) {
    RC_ASSERT(other.integers[i] == -piece.integers[i]);
  }
  RC_ASSERT(other.scales == piece.scales);
}

/// A number that is not finite shows in every element of its block, and in no other.
RC_GTEST_PROP(Quantise, MakesTheWholeBlockOfANanOrInfinityNan, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const Tensor values = numbers_of_all_sizes(elements, dtype, 5);
  QuantiseRun run(format, {.kernels = *rc::gen::element(Kernels::plain, Kernels::fast)});
  const Bytes clean = run.quantise(values);
  const auto planted = *rc::gen::inRange<int64_t>(0, elements);
  plant(values, planted, *rc::gen::element(kNan, -kNan, kInfinity, -kInfinity));
  const Bytes bytes = run.quantise(values);
  const Tensor ones = float_tensor(std::vector<float>(static_cast<size_t>(elements), 1.0f));
  for (const auto& [of_clean, of_bytes] :
       {std::pair{run.dequantise(clean, elements, DType::f32),
                  run.dequantise(bytes, elements, DType::f32)},
        std::pair{run.dequantise(clean, elements, DType::bf16),
                  run.dequantise(bytes, elements, DType::bf16)},
        std::pair{run.dequantise_add(clean, ones), run.dequantise_add(bytes, ones)}}) {
    const auto before = bits_of_numbers(of_clean), after = bits_of_numbers(of_bytes);
    for (int64_t i = 0; i < elements; ++i) {
      const bool in_block = i / format.block == planted / format.block;
      const auto index = static_cast<size_t>(i);
      RC_ASSERT(after[index] == (in_block ? std::bit_cast<uint32_t>(kNan) : before[index]));
    }
  }
}

RC_GTEST_PROP(Quantise, HasOneResultOfThePlainAndTheFastKernel, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const auto offset = *rc::gen::element<int64_t>(0, 1, 3);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  const double beta = *rc::gen::element(0.0, 0.5, 0.8, 1.0);
  const auto results = [&](Kernels kernels) {
    QuantiseRun run(format, {.kernels = kernels, .threads = 2, .offset = offset});
    const Tensor values = numbers_of_all_sizes(elements, DType::f32, seed);
    if (seed % 4 == 0) plant(values, static_cast<int64_t>(seed) % elements, kInfinity);
    const Tensor error = numbers_of_all_sizes(elements, DType::f32, seed + 1);
    const Bytes piece = run.quantise(values);
    const Bytes of_bf16 = run.quantise(numbers_of_all_sizes(elements, DType::bf16, seed));
    const Bytes with_feedback = run.quantise_with_feedback(values, error, beta);
    return bits_of(piece, of_bf16, with_feedback, bits_of_numbers(error),
                   bits_of_numbers(run.dequantise(piece, elements, DType::f32)),
                   bits_of_numbers(run.dequantise(piece, elements, DType::bf16)),
                   bits_of_numbers(run.dequantise_add(piece, error)));
  };
  RC_ASSERT(results(Kernels::plain) == results(Kernels::fast));
}

TEST(Quantise, GivesTheSameBitsOnAnyNumberOfThreads) {
  constexpr int64_t kElements = 8 * 16384 + 77;
  const Tensor values = numbers_of_all_sizes(kElements, DType::f32, 6);
  const auto append = [](Bits& bits, const Tensor& tensor) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(tensor.raw());
    bits.insert(bits.end(), bytes, bytes + tensor.bytes());
  };
  for (const QuantisedFormat& format :
       {QuantisedFormat{QuantisedType::int8, 100}, QuantisedFormat{QuantisedType::int4, 64}}) {
    expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          QuantiseRun run(format, {.kernels = kernels, .threads = threads});
          const Tensor error({kElements}, DType::f32);
          error.copy_from(values);
          const Bytes piece = run.quantise_with_feedback(values, error, 0.8);
          Bits bits = piece;
          append(bits, error);
          append(bits, run.dequantise_add(piece, error));
          return bits;
        },
        FastKernel::same_bits);
  }
}

/// A program's processor flushes denormal numbers, and its device does not.
TEST(Quantise, GivesTheSameBitsWhereDenormalNumbersAreFlushed) {
  // The factor is 2^126. A denormal number that counted would round to one.
  constexpr float kTiny = 0x1p-126f;
  const Tensor values =
      float_tensor({127 * kTiny, 0.75f * kTiny, -0.75f * kTiny, kTiny, 7 * kTiny, 0.75f * kTiny});
  for (const QuantisedFormat& format :
       {QuantisedFormat{QuantisedType::int8, 4}, QuantisedFormat{QuantisedType::int4, 2}}) {
    for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
      const auto piece = [&] { return QuantiseRun(format, {.kernels = kernels}).quantise(values); };
      const Bytes kept = piece();
      Bytes flushed;
      std::thread([&] {
        flush_denormals();
        flushed = piece();
      }).join();
      EXPECT_EQ(flushed, kept);
    }
  }
}

TEST(Quantise, DoesNothingWithoutElements) {
  QuantiseRun run({}, {});
  const Tensor none({0}, DType::f32);
  EXPECT_EQ(run.quantise(none), Bytes());
  EXPECT_EQ(run.quantise_with_feedback(none, none, 0.8), Bytes());
  EXPECT_EQ(run.dequantise({}, 0, DType::bf16).elements(), 0);
}

TEST(Quantise, AddsPiecesInTheOrderOfTheCalls) {
  // In another order the ones would not be lost.
  QuantiseRun run({QuantisedType::int8, 4}, {});
  Tensor sums = float_tensor({0, 0});
  for (const float addend : {127.0f * 0x1p25f, 127.0f, -127.0f * 0x1p25f}) {
    sums = run.dequantise_add(run.quantise(float_tensor({addend, 0})), sums);
  }
  EXPECT_EQ(floats_of(sums), (std::vector<float>{0, 0}));
}

/// Without feedback each step would send the same rounded addends, so the mean would stay off.
TEST(QuantiseWithFeedback, BringsTheMeanOfManyStepsToTheAddends) {
  constexpr int64_t kElements = 256;
  constexpr int kSteps = 200;
  QuantiseRun run({QuantisedType::int4, 64}, {});
  const Tensor values = random_tensor({kElements}, DType::f32, "values");
  const auto mean_difference = [&](double factor, const Tensor& restored) {
    double sum = 0;
    for (int64_t i = 0; i < kElements; ++i) {
      sum += std::abs(factor * restored.data<float>()[i] - values.data<float>()[i]);
    }
    return sum / kElements;
  };
  const double plain =
      mean_difference(1, run.dequantise(run.quantise(values), kElements, DType::f32));
  const Tensor error({kElements}, DType::f32);
  error.fill_zero();
  Tensor total({kElements}, DType::f32);
  total.fill_zero();
  for (int step = 0; step < kSteps; ++step) {
    total = run.dequantise_add(run.quantise_with_feedback(values, error, 0.8), total);
  }
  EXPECT_GT(plain, 0.05);
  EXPECT_LT(mean_difference(1.0 / kSteps, total), 0.2 * plain);
}

/// Expects an InternalError with this text.
template <typename Action>
void expect_refusal(const Action& action, const char* text) {
  EXPECT_THAT(action, ::testing::ThrowsMessage<InternalError>(::testing::HasSubstr(text)));
}

TEST(Quantise, RefusesWhatDoesNotFit) {
  Runtime runtime(host_target(1));
  const Execution execution{
      .runtime = runtime, .inputs = {}, .outputs = {}, .workspace = {}, .name = "values"};
  const auto bytes_in_blocks_of = [](QuantisedType type, int64_t block) {
    return [=] { quantised_bytes({type, block}, 8); };
  };
  expect_refusal(bytes_in_blocks_of(QuantisedType::int8, 0), "blocks of 0 elements in int8");
  expect_refusal(bytes_in_blocks_of(QuantisedType::int8, 4097), "expected 1 to 4096");
  expect_refusal(bytes_in_blocks_of(QuantisedType::int4, 7), "in int4 an even number");

  const QuantisedFormat format;
  const Tensor values({20}, DType::f32), wide({20}, DType::f64), narrow({20}, DType::bf16);
  const Tensor memory({64}, DType::u8), piece = memory.slice(0, 32);
  const auto quantised = [&](const Tensor& from, const Tensor& to) {
    return [&, from, to] { quantise(execution, format, from, to); };
  };
  expect_refusal(quantised(values, memory), "a piece of 20 elements is u8 [64]; expected u8 [32]");
  expect_refusal(quantised(values, Tensor({32}, DType::bf16)), "expected u8 [32]");
  expect_refusal(quantised(values, memory.slice(4, 36)), "no multiple of 16");
  expect_refusal(quantised(wide, piece), "f64");
  expect_refusal([&] { dequantise_add(execution, format, piece, narrow); }, "sums of bf16");
  const auto with_feedback = [&](const Tensor& from, const ErrorFeedback& feedback) {
    return
        [&, from, feedback] { quantise_with_feedback(execution, format, from, feedback, piece); };
  };
  expect_refusal(with_feedback(narrow, {.error = values}), "addends of bf16");
  expect_refusal(with_feedback(values, {.error = narrow}), "an error of bf16");
  expect_refusal(with_feedback(values, {.error = Tensor({4}, DType::f32)}),
                 "an error of 4 elements for 20");
  expect_refusal(with_feedback(values, {.error = Tensor({20}, DType::f32), .beta = 1.5}),
                 "beta is 1.5");
}

}  // namespace
}  // namespace tessera::testing
