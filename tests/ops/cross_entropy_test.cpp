#include "ops/loss/cross_entropy.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "ops/loss/logit_chunks.h"
#include "support/emulated.h"
#include "support/gradient_check.h"
#include "support/thread_counts.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::random_tensor;

Tensor targets_tensor(int64_t tokens, int64_t vocabulary, int64_t without = 3) {
  Tensor tensor({tokens}, DType::i32);
  for (int64_t t = 0; t < tokens; ++t) {
    tensor.data<int32_t>()[t] =
        t % without == without - 1 ? -1 : static_cast<int32_t>((t * 7 + 3) % vocabulary);
  }
  return tensor;
}

TEST(CrossEntropy, GradientsAgreeWithFiniteDifferences) {
  for (const double z : {0.0, 1e-2}) {
    check_gradients(
        [z](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          const Value targets = builder.input("targets", {{7}, DType::i32, {}});
          const Value seed = builder.input("seed", {{1}, DType::f64, {}});
          return {linear_cross_entropy_with_gradient(builder, in[0], in[1], targets, seed, z).loss};
        },
        {{7, 4}, {9, 4}},
        []() -> testing::FixedInputs {
          return {{"targets", targets_tensor(7, 9)}};
        },
        {.seed = "seed"});
  }
}

struct Result {
  double loss;
  std::vector<float> token_loss;
  std::vector<float> x_gradient;
  std::vector<float> weight_gradient;
};

testing::Bits bits_of(const Result& result) {
  return testing::bits_of(std::vector{result.loss}, result.token_loss, result.x_gradient,
                          result.weight_gradient);
}

template <typename T>
std::vector<float> as_floats(const Tensor& tensor) {
  std::vector<float> result;
  for (const T& value : tensor.values<T>()) {
    result.push_back(static_cast<float>(static_cast<Compute<T>>(value)));
  }
  return result;
}

/// Inputs are rounded to bf16 in every case, so that all types start from the same numbers.
Result run(DType dtype, Kernels kernels, int64_t tokens, int64_t vocabulary, int64_t hidden,
           int threads = 2, const std::optional<testing::Emulation>& emulation = {}) {
  Runtime runtime = testing::make_runtime(host_target(threads, kernels), emulation);
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{tokens, hidden}, dtype, {}});
  const Value weight = builder.parameter("weight", {{vocabulary, hidden}, dtype, {}});
  const Value targets = builder.input("targets", {{tokens}, DType::i32, {}});
  const Value seed = builder.input("seed", {{1}, accumulation_dtype(dtype), {}});
  const CrossEntropy result =
      linear_cross_entropy_with_gradient(builder, x, weight, targets, seed, 1e-3);
  const CrossEntropy alone = linear_cross_entropy(builder, x, weight, targets, 1e-3);
  for (const CrossEntropy& both : {result, alone}) {
    builder.output(both.loss);
    builder.output(both.token_loss);
  }
  const Seed seeds[] = {{result.loss, seed}};
  differentiate(builder, seeds);
  testing::ProgramRun frame(program, runtime);
  std::vector<Tensor> gradients;
  for (const Value input : {x, weight}) {
    const Shape& shape = program.spec(input).shape;
    Tensor narrow = random_tensor(shape, DType::bf16, program.info(input).name, 0.5);
    Tensor value(shape, dtype);
    convert(narrow, value);
    frame.bind(input, value);
    Tensor gradient(shape, accumulation_dtype(dtype));
    gradient.fill_zero();
    frame.bind(program.main_gradient(input), gradient);
    gradients.push_back(gradient);
  }
  frame.bind(targets, targets_tensor(tokens, vocabulary));
  Tensor one({1}, accumulation_dtype(dtype));
  dispatch_wide(one.dtype(), [&](auto type) { *one.data<decltype(type)>() = 1; });
  frame.bind(seed, one);
  frame.run();
  for (const auto& [one_value, other] :
       {std::pair(result.loss, alone.loss), std::pair(result.token_loss, alone.token_loss)}) {
    EXPECT_EQ(std::memcmp(frame[one_value].raw(), frame[other].raw(),
                          static_cast<size_t>(frame[other].bytes())),
              0)
        << "the loss is another without its gradient";
  }
  return dispatch_wide(one.dtype(), [&](auto type) {
    using Wide = decltype(type);
    return Result{static_cast<double>(*frame[result.loss].data<Wide>()),
                  as_floats<Wide>(frame[result.token_loss]), as_floats<Wide>(gradients[0]),
                  as_floats<Wide>(gradients[1])};
  });
}

/// Within `relative` of the largest entry, or of `least` where all are smaller.
void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 double relative, double least = 1e-6) {
  double largest = least;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], relative * largest) << "element " << i;
  }
}

TEST(CrossEntropy, FastAgreesWithPlain) {
  // The plain kernel runs in f64, because its simple sums over so many classes are less exact in
  // f32 than the fast kernel's.
  for (const auto& [tokens, vocabulary] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 5}, {37, 33}, {80, 20000}}) {
    const Result plain = run(DType::f64, Kernels::plain, tokens, vocabulary, 8);
    const Result fast = run(DType::f32, Kernels::fast, tokens, vocabulary, 8);
    EXPECT_NEAR(fast.loss, plain.loss, 1e-5 * plain.loss);
    expect_near(fast.token_loss, plain.token_loss, 1e-5);
    expect_near(fast.x_gradient, plain.x_gradient, 1e-5);
    expect_near(fast.weight_gradient, plain.weight_gradient, 1e-5);
  }
}

void expect_devices_agree(DType dtype, int64_t tokens, int64_t vocabulary, int64_t hidden,
                          int lanes) {
  vocabulary = testing::product_size(vocabulary, dtype);
  hidden = testing::product_size(hidden, dtype);
  const Result plain = run(dtype, Kernels::plain, tokens, vocabulary, hidden, 1);
  const double bound = testing::device_tolerance(dtype).of_entry;
  testing::expect_equal_bits_on_devices(
      lanes,
      [&](const testing::Emulation& device) {
        return run(dtype, Kernels::fast, tokens, vocabulary, hidden, 1, device);
      },
      [&](const Result& result) {
        EXPECT_NEAR(result.loss, plain.loss, 1e-5 * std::max(plain.loss, 1.0));
        expect_near(result.token_loss, plain.token_loss, 1e-5, 1);
        expect_near(result.x_gradient, plain.x_gradient, bound, 1);
        expect_near(result.weight_gradient, plain.weight_gradient, bound, 1);
      });
}

RC_GTEST_PROP(CrossEntropy, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 300);
  const int64_t vocabulary = *rc::gen::element<int64_t>(1, 7, 64, 100);
  const auto hidden = *rc::gen::inRange<int64_t>(1, 40);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  expect_devices_agree(dtype, tokens, vocabulary, hidden, testing::any_lanes());
  RC_ASSERT(!::testing::Test::HasFailure());
}

/// A number of tokens, a power of two, that is not less than a device's chunk of them: from there
/// on the workspace does not grow.
int64_t tokens_of_a_chunk(Device device, int64_t vocabulary, int64_t hidden) {
  const Target target = host_target(1, Kernels::fast, device);
  const auto workspace = [&](int64_t tokens) {
    return LogitChunks({{tokens, hidden}, DType::f32, {}}, {{vocabulary, hidden}, DType::f32, {}})
        .workspace_bytes(target, true);
  };
  int64_t tokens = 256;
  while (tokens < (1 << 16) && workspace(2 * tokens) != workspace(tokens)) tokens *= 2;
  return tokens;
}

TEST(CrossEntropy, TheDevicesKernelsAgreeWithThePlainOnesOverSeveralChunks) {
  constexpr int64_t kVocabulary = 13, kHidden = 3;
  int64_t chunk = 0;
  for (const testing::Emulation& device : testing::every_device()) {
    chunk = std::max(chunk, tokens_of_a_chunk(device.device, kVocabulary, kHidden));
  }
  ASSERT_LT(chunk, 1 << 16);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_devices_agree(dtype, chunk + 37, kVocabulary, kHidden, 32);
  }
}

RC_GTEST_PROP(CrossEntropy, FastAgreesWithPlainOnAnyShape, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 150);
  const auto vocabulary = *rc::gen::inRange<int64_t>(1, 400);
  const auto hidden = *rc::gen::inRange<int64_t>(1, 40);
  const Result plain = run(DType::f64, Kernels::plain, tokens, vocabulary, hidden);
  const Result fast = run(DType::f32, Kernels::fast, tokens, vocabulary, hidden);
  // Gradients are differences of probabilities and ones: where they cancel, f32 keeps the accuracy
  // of the ones.
  EXPECT_NEAR(fast.loss, plain.loss, 1e-5 * std::max(plain.loss, 1.0));
  expect_near(fast.token_loss, plain.token_loss, 1e-5, 1);
  expect_near(fast.x_gradient, plain.x_gradient, 1e-5, 1);
  expect_near(fast.weight_gradient, plain.weight_gradient, 1e-5, 1);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(CrossEntropy, BrainFloatStaysWithinItsRounding) {
  const Result plain = run(DType::f32, Kernels::plain, 37, 33, 8);
  const Result fast = run(DType::bf16, Kernels::fast, 37, 33, 8);
  // The logits are f32 sums of exact products of bf16 numbers: the loss keeps f32's accuracy.
  EXPECT_NEAR(fast.loss, plain.loss, 1e-5 * plain.loss);
  // The logits' gradient is rounded to bf16 (half an ulp is 2^-9 of the entry), the gradient of x
  // once more; a sum of n such entries errs by at most their sum of errors, and the sum of absolute
  // addends is below 2 here where the largest entry of the result is above 1/4: 8 half-ulps each.
  expect_near(fast.weight_gradient, plain.weight_gradient, 16.0 / 512);
  expect_near(fast.x_gradient, plain.x_gradient, 16.0 / 512);
}

/// The definition in f64, token after token; both kernels work in chunks.
/// With each gradient stand the sizes of what is rounded on the way to it: the addends, of which
/// each holds an entry of the logits' gradient, and for x the result itself.
struct Reference {
  double loss = 0;
  std::vector<double> token_loss, x_gradient, weight_gradient;
  std::vector<double> x_gradient_sizes, weight_gradient_sizes;
};

Reference reference(int64_t tokens, int64_t vocabulary, int64_t hidden, double z) {
  const auto values = [&](int64_t rows, const char* name) {
    const std::vector<float> floats =
        as_floats<BFloat16>(random_tensor({rows, hidden}, DType::bf16, name, 0.5));
    return std::vector<double>(floats.begin(), floats.end());
  };
  const std::vector<double> x = values(tokens, "x"), weight = values(vocabulary, "weight");
  const Tensor targets = targets_tensor(tokens, vocabulary);
  Reference result;
  result.x_gradient = result.x_gradient_sizes = std::vector<double>(x.size());
  result.weight_gradient = result.weight_gradient_sizes = std::vector<double>(weight.size());
  std::vector<double> logits(static_cast<size_t>(vocabulary));
  for (int64_t token = 0; token < tokens; ++token) {
    const int32_t target = targets.data<int32_t>()[token];
    if (target < 0) {
      result.token_loss.push_back(0);
      continue;
    }
    const auto own = static_cast<size_t>(token * hidden);
    double sum = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      logits[v] = 0;
      for (size_t h = 0; h < static_cast<size_t>(hidden); ++h) {
        logits[v] += x[own + h] * weight[v * static_cast<size_t>(hidden) + h];
      }
      sum += std::exp(logits[v]);
    }
    const double log_sum_exp = std::log(sum);
    result.token_loss.push_back(log_sum_exp - logits[static_cast<size_t>(target)]);
    result.loss += result.token_loss.back() + z * log_sum_exp * log_sum_exp;
    for (size_t v = 0; v < logits.size(); ++v) {
      const double hit = static_cast<int64_t>(v) == target ? 1 : 0;
      const double logit_gradient =
          std::exp(logits[v] - log_sum_exp) * (1 + 2 * z * log_sum_exp) - hit;
      for (size_t h = 0; h < static_cast<size_t>(hidden); ++h) {
        const size_t at = v * static_cast<size_t>(hidden) + h;
        result.x_gradient[own + h] += logit_gradient * weight[at];
        result.x_gradient_sizes[own + h] += std::abs(logit_gradient * weight[at]);
        result.weight_gradient[at] += logit_gradient * x[own + h];
        result.weight_gradient_sizes[at] += std::abs(logit_gradient * x[own + h]);
      }
    }
  }
  for (size_t i = 0; i < x.size(); ++i)
    result.x_gradient_sizes[i] += std::abs(result.x_gradient[i]);
  return result;
}

/// Within `rounding` of the sizes, 2 % of slack for products of roundings, and 1e-5 of the largest
/// entry for sums in f32.
void expect_bounded(const std::vector<float>& actual, const std::vector<double>& expected,
                    const std::vector<double>& sizes, double rounding) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1.02 * rounding * sizes[i] + 1e-5 * largest)
        << "element " << i;
  }
}

TEST(CrossEntropy, SeveralChunksAndARestAgreeWithTheDefinition) {
  // A chunk holds at least 256 tokens: 256 + 256 + 88. The targets of two chunks differ.
  constexpr int64_t kTokens = 600, kVocabulary = 150000, kHidden = 8;
  constexpr double kRounding = 0x1p-8;  // of bf16
  const Reference expected = reference(kTokens, kVocabulary, kHidden, 1e-3);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const double rounding = dtype == DType::bf16 ? kRounding : 0;
    const Result found = run(dtype, Kernels::fast, kTokens, kVocabulary, kHidden);
    EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
    expect_bounded(found.token_loss, expected.token_loss, std::vector<double>(kTokens), 0);
    expect_bounded(found.x_gradient, expected.x_gradient, expected.x_gradient_sizes, rounding);
    expect_bounded(found.weight_gradient, expected.weight_gradient, expected.weight_gradient_sizes,
                   rounding);
  }
}

TEST(CrossEntropy, OnlyTheSeedItWasBuiltWithDifferentiatesIt) {
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{2, 4}, DType::f32, {}});
  const Value weight = builder.parameter("weight", {{64, 4}, DType::f32, {}});
  const Value targets = builder.input("targets", {{2}, DType::i32, {}});
  const Value seed = builder.input("seed", {{1}, DType::f32, {}});
  const Value other = builder.input("other", {{1}, DType::f32, {}});
  const CrossEntropy result = linear_cross_entropy_with_gradient(builder, x, weight, targets, seed);
  const Seed wrong[] = {{result.loss, other}};
  EXPECT_THROW(differentiate(builder, wrong), InternalError);
  const CrossEntropy without = linear_cross_entropy(builder, x, weight, targets);
  const Seed none[] = {{without.loss, seed}};
  EXPECT_THROW(differentiate(builder, none), InternalError);
}

TEST(CrossEntropy, UniformLogitsGiveTheLogOfTheVocabulary) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{2, 4}, DType::f32, {}});
  const Value weight = builder.parameter("weight", {{64, 4}, DType::f32, {}});
  const Value targets = builder.input("targets", {{2}, DType::i32, {}});
  const CrossEntropy result = linear_cross_entropy(builder, x, weight, targets);
  builder.output(result.loss);
  testing::ProgramRun frame(program, runtime);
  frame.bind(x, random_tensor({2, 4}, DType::f32, "x"));
  Tensor zero({64, 4}, DType::f32);
  zero.fill_zero();
  frame.bind(weight, zero);
  frame.bind(targets, targets_tensor(2, 64));
  frame.run();
  EXPECT_NEAR(*frame[result.loss].data<float>(), 2 * std::log(64.0), 1e-5);
}

TEST(CrossEntropy, SameBitsWithAnyNumberOfThreads) {
  if (!rows_keep_their_bits(host_target(1))) GTEST_SKIP() << testing::kBitsChange;
  // A chunk of 1024 tokens and a rest.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
      const Result result = run(dtype, kernels, 1101, 333, 24, threads);
      return testing::bits_of(std::vector{result.loss}, result.token_loss, result.x_gradient,
                              result.weight_gradient);
    });
  }
}

}  // namespace
}  // namespace tessera
