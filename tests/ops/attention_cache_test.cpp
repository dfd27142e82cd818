#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "ops/attention_cases.h"
#include "support/emulated.h"
#include "support/thread_counts.h"

namespace tessera::testing {
namespace {

/// A cache of `capacity` rows and programs that feed it pieces of one sequence.
class CachedRun {
 public:
  CachedRun(const AttentionCase& test, DType dtype, Kernels kernels, int threads, int64_t capacity,
            const std::optional<Emulation>& emulation = {})
      : test_(test),
        dtype_(dtype),
        runtime_(make_runtime(test.target(threads, kernels), emulation)),
        keys_({capacity, test.kv_heads * test.head_dim}, dtype),
        values_(keys_.shape(), dtype) {
    // What was never written must not be read.
    Tensor garbage(keys_.shape(), DType::f64);
    std::ranges::fill(garbage.values<double>(), std::numeric_limits<double>::quiet_NaN());
    convert(garbage, keys_);
    convert(garbage, values_);
  }

  /// The output for rows [position, position + tokens) of the inputs, in f64.
  std::vector<double> feed(std::span<const Tensor> inputs, int64_t position, int64_t tokens) {
    Program program;
    Builder builder(program);
    const auto input = [&](const char* name, const Tensor& of) {
      return builder.input(name, {of.shape().with_dim(0, tokens), dtype_, {}});
    };
    const Value q = input("q", inputs[0]), k = input("k", inputs[1]), v = input("v", inputs[2]);
    const Value key_cache = builder.state("key_cache", {keys_.shape(), dtype_, {}});
    const Value value_cache = builder.state("value_cache", {values_.shape(), dtype_, {}});
    const Value position_value = builder.input("position", {{1}, DType::i32, {}});
    const Value output =
        cached_attention(builder, q, k, v, key_cache, value_cache, position_value, test_.options());
    builder.output(output);
    ProgramRun frame(program, runtime_);
    frame.bind(q, inputs[0].slice(position, position + tokens));
    frame.bind(k, inputs[1].slice(position, position + tokens));
    frame.bind(v, inputs[2].slice(position, position + tokens));
    frame.bind(key_cache, keys_);
    frame.bind(value_cache, values_);
    auto index = static_cast<int32_t>(position);
    frame.bind(position_value, Tensor::wrap(&index, {1}, DType::i32));
    frame.poison();
    frame.forward();
    frame.read_bound();
    return widened(on_host(frame[output]));
  }

  std::vector<double> feed_all(std::span<const Tensor> inputs, std::span<const int64_t> pieces) {
    std::vector<double> result;
    int64_t position = 0;
    for (const int64_t tokens : pieces) {
      const auto part = feed(inputs, position, tokens);
      result.insert(result.end(), part.begin(), part.end());
      position += tokens;
    }
    return result;
  }

  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }

 private:
  AttentionCase test_;
  DType dtype_;
  Runtime runtime_;
  Tensor keys_;
  Tensor values_;
};

/// Feeds one sequence in pieces and compares with the whole of it in plain attention; `tolerance`
/// is relative to the largest value, which no output exceeds.
void expect_pieces_equal_whole(AttentionCase test, const std::vector<int64_t>& pieces, DType dtype,
                               double tolerance) {
  test.sequence = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
  const auto inputs = attention_inputs(test, dtype);
  const auto whole = run_attention(test, dtype, Kernels::plain, 2, inputs);
  CachedRun run(test, dtype, Kernels::fast, 2, test.sequence + 5);
  expect_within(run.feed_all(inputs, pieces), whole.output,
                tolerance * largest_entry(widened(inputs[2])), test.text());
}

const std::vector<std::vector<int64_t>> kPieces{
    {1, 1, 1}, {5, 1, 17, 1}, {64, 1, 64}, {130, 1, 1, 12}, {7, 300, 3}, {1024, 40, 1}, {1100}};

TEST(CachedAttention, PlainPiecesEqualTheWhole) {
  for (const auto& pieces : kPieces) {
    expect_pieces_equal_whole({.heads = 4, .kv_heads = 2, .head_dim = 6}, pieces, DType::f64,
                              1e-13);
  }
}

TEST(CachedAttention, FastPiecesEqualTheWhole) {
  for (const auto& pieces : kPieces) {
    expect_pieces_equal_whole({.heads = 4, .kv_heads = 1, .head_dim = 64}, pieces, DType::f32,
                              1e-5);
    for (const int64_t kilobytes : {128, 512, 1024}) {
      expect_pieces_equal_whole(
          {.heads = 4, .kv_heads = 1, .head_dim = 24, .cache_bytes = kilobytes << 10}, pieces,
          DType::f32, 1e-5);
    }
  }
}

RC_GTEST_PROP(CachedAttention, AnyPiecesEqualTheWhole, ()) {
  const auto pieces = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 90)));
  AttentionCase test;
  test.kv_heads = *rc::gen::inRange<int64_t>(1, 4);
  test.heads = test.kv_heads * *rc::gen::inRange<int64_t>(1, 4);
  test.head_dim = *rc::gen::inRange<int64_t>(1, 80);
  const std::vector<int64_t> few(pieces.begin(),
                                 pieces.begin() + std::min<int64_t>(std::ssize(pieces), 8));
  expect_pieces_equal_whole(test, few, DType::f64, 1e-13);
  expect_pieces_equal_whole(test, few, DType::f32, 1e-5);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(CachedAttention, BFloat16PiecesAreWithinItsRounding) {
  for (const auto& pieces : kPieces) {
    // The result is rounded by at most 2^-8 of the largest value in both computations, and the
    // probabilities that weigh the values in the fast one.
    expect_pieces_equal_whole({.heads = 4, .kv_heads = 2, .head_dim = 32}, pieces, DType::bf16,
                              3.05 * 0x1p-8);
  }
}

RC_GTEST_PROP(CachedAttention, TheDevicesKernelsAgree, ()) {
  AttentionCase test;
  test.kv_heads = *rc::gen::inRange<int64_t>(1, 3);
  test.heads = test.kv_heads * *rc::gen::inRange<int64_t>(1, 3);
  test.head_dim = *rc::gen::element<int64_t>(6, 16, 72);
  const auto pieces = *rc::gen::element(
      std::vector<int64_t>{1, 1, 5}, std::vector<int64_t>{40, 1, 9}, std::vector<int64_t>{130, 1});
  test.sequence = std::accumulate(pieces.begin(), pieces.end(), int64_t{0});
  const int64_t capacity = test.sequence + *rc::gen::element<int64_t>(0, 3, 300);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const auto inputs = attention_inputs(test, dtype);
  const auto whole = run_attention(test, dtype, Kernels::plain, 2, inputs);
  expect_equal_bits_on_devices(
      any_lanes(),
      [&](const Emulation& device) {
        CachedRun run(test, dtype, Kernels::fast, 1, capacity, device);
        auto output = run.feed_all(inputs, pieces);
        return std::vector{std::move(output), widened(run.keys().slice(0, test.sequence)),
                           widened(run.values().slice(0, test.sequence))};
      },
      [&](const std::vector<std::vector<double>>& found) {
        const double tolerance = dtype == DType::bf16 ? 2 * kBFloat16Rounding : 1e-5;
        expect_within(found[0], whole.output, tolerance * largest_entry(widened(inputs[2])),
                      test.text());
        EXPECT_EQ(found[1], widened(inputs[1]));
        EXPECT_EQ(found[2], widened(inputs[2]));
      });
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(CachedAttention, ADeviceWritesNothingBeyondTheCache) {
  const AttentionCase test{.sequence = 6, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const auto inputs = attention_inputs(test, DType::f32);
  for (const Emulation& device : every_device()) {
    CachedRun run(test, DType::f32, Kernels::fast, 1, 4, device);
    run.feed(inputs, 0, 6);  // the address sanitizer would see rows 4 and 5
    EXPECT_EQ(widened(run.keys()), widened(inputs[1].slice(0, 4))) << describe(device);
  }
}

TEST(CachedAttention, ThreadsDoNotChangeTheBits) {
  const std::vector<int64_t> pieces{200, 1, 1, 9};
  const AttentionCase test{.sequence = 211, .heads = 10, .kv_heads = 2, .head_dim = 64};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto inputs = attention_inputs(test, dtype);
    expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
      CachedRun run(test, dtype, kernels, threads, 256);
      return bits_of(run.feed_all(inputs, pieces));
    });
  }
}

TEST(CachedAttention, WritesTheNewRows) {
  const AttentionCase test{.sequence = 4, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const auto inputs = attention_inputs(test, DType::f32);
  CachedRun run(test, DType::f32, Kernels::fast, 1, 4);
  run.feed(inputs, 0, 3);
  for (int64_t at = 0; at < 24; ++at) {
    EXPECT_EQ(run.keys().data<float>()[at], inputs[1].data<float>()[at]);
    EXPECT_EQ(run.values().data<float>()[at], inputs[2].data<float>()[at]);
  }
  EXPECT_TRUE(std::isnan(run.keys().data<float>()[24]));
}

TEST(CachedAttention, RefusesMoreThanTheCapacityAndWritesNothing) {
  const AttentionCase test{.sequence = 6, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const auto inputs = attention_inputs(test, DType::f32);
  CachedRun run(test, DType::f32, Kernels::fast, 1, 5);
  run.feed(inputs, 0, 4);
  EXPECT_THAT([&] { run.feed(inputs, 4, 2); },
              ::testing::ThrowsMessage<InternalError>(
                  ::testing::HasSubstr("2 tokens at position 4 of a cache of 5")));
  EXPECT_TRUE(std::isnan(run.keys().data<float>()[32]));
  EXPECT_TRUE(std::isnan(run.values().data<float>()[32]));
}

TEST(CachedAttention, RefusesCachesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const auto build = [&](Shape cache, Shape position) {
    const Value q = builder.input("q", {{2, 16}, DType::f32, {}});
    const Value k = builder.input("k", {{2, 8}, DType::f32, {}});
    const Value key_cache = builder.state("key_cache", {cache, DType::f32, {}});
    const Value value_cache = builder.state("value_cache", {cache, DType::f32, {}});
    const Value at = builder.input("position", {position, DType::i32, {}});
    cached_attention(builder, q, k, k, key_cache, value_cache, at,
                     {.heads = 2, .kv_heads = 1, .head_dim = 8});
  };
  EXPECT_NO_THROW(build({10, 8}, {1}));
  EXPECT_THROW(build({10, 16}, {1}), InternalError);
  EXPECT_THROW(build({10, 8}, {2}), InternalError);
}

}  // namespace
}  // namespace tessera::testing
