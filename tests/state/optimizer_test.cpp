#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>

#include <gtest/gtest.h>

#include "base/random.h"
#include "state/adamw.h"
#include "state/schedule.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

std::vector<ParameterSpec> specs(DType matrix) {
  return {{"embedding", {40, 17}, matrix, ParameterRole::embedding, {.deviation = 0.5}, "a"},
          {"matrix", {65, 33}, matrix, ParameterRole::matrix, {.deviation = 0.5}, "b"},
          {"norm", {33}, accumulation_dtype(matrix), ParameterRole::norm, {.constant = 1}, "b"},
          // Several threads' shares of AdamW's elements and of the norm's blocks, a multiple of
          // neither.
          {"wide", {5, 66667}, matrix, ParameterRole::matrix, {.deviation = 0.5}, "c"}};
}

/// The elements of a wide tensor in f64.
std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> result;
  dispatch_wide(tensor.dtype(), [&](auto type) {
    const auto values = tensor.values<decltype(type)>();
    result.assign(values.begin(), values.end());
  });
  return result;
}

void fill_gradients(const ParameterStore& store, double scale) {
  for (const ParameterState& state : store.parameters()) {
    const CounterRandom random(9, state.spec.name);
    dispatch_wide(state.gradient.dtype(), [&](auto type) {
      using Wide = decltype(type);
      for (int64_t i = 0; i < state.gradient.elements(); ++i) {
        state.gradient.data<Wide>()[i] = static_cast<Wide>(scale * random.normal(i));
      }
    });
  }
}

/// AdamW as its paper writes it (algorithm 2 with PyTorch's order of operations), for one tensor.
struct Reference {
  std::vector<double> weight, m, v;

  explicit Reference(std::vector<double> first)
      : weight(std::move(first)), m(weight.size()), v(weight.size()) {}
  void step(const OptimizerConfig& c, int64_t t, double lr, double scale,
            const std::vector<double>& gradient, bool decay) {
    const double correction1 = 1 - std::pow(c.beta1, t);
    const double correction2 = 1 - std::pow(c.beta2, t);
    for (size_t i = 0; i < weight.size(); ++i) {
      const double g = scale * gradient[i];
      weight[i] *= 1 - lr * (decay ? c.weight_decay : 0);
      m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
      v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
      weight[i] -= lr * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + c.epsilon);
    }
  }
};

/// `tolerance` is relative to a weight, or to what the steps moved it by where that is more.
void expect_masters(const ParameterState& state, const Reference& reference, double tolerance,
                    double moved) {
  const std::vector<double> masters = numbers(state.master);
  ASSERT_EQ(masters.size(), reference.weight.size());
  for (size_t i = 0; i < masters.size(); ++i) {
    const double expected = reference.weight[i];
    ASSERT_NEAR(masters[i], expected, tolerance * std::max(std::abs(expected), moved))
        << state.spec.name << " in " << dtype_name(state.spec.dtype) << ", element " << i;
  }
}

void expect_rounded_weights(const ParameterState& state) {
  for (int64_t i = 0; i < state.master.elements(); ++i) {
    ASSERT_EQ(state.weight.data<BFloat16>()[i].bits, BFloat16(state.master.data<float>()[i]).bits);
  }
}

TEST(AdamW, FollowsItsDefinitionInEveryType) {
  constexpr int64_t kSteps = 5;
  constexpr double kRate = 1e-2, kScale = 0.5;
  const OptimizerConfig config;
  for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, double>>{
           {DType::f64, 1e-13}, {DType::f32, 2e-6}, {DType::bf16, 2e-6}}) {
    MemoryPool pool;
    const ParameterStore store(pool, specs(dtype));
    store.initialize(4, 2);
    std::vector<Reference> references;
    for (const ParameterState& state : store.parameters()) {
      references.emplace_back(numbers(state.master));
    }
    for (int64_t t = 1; t <= kSteps; ++t) {
      fill_gradients(store, 0.1 * static_cast<double>(t));
      adamw_step(store, config, {.step = t, .learning_rate = kRate, .gradient_scale = kScale}, 2);
      for (size_t i = 0; i < references.size(); ++i) {
        const ParameterState& state = store.parameters()[i];
        references[i].step(config, t, kRate, kScale, numbers(state.gradient),
                           decays(config, state.spec));
      }
    }
    for (size_t i = 0; i < references.size(); ++i) {
      const ParameterState& state = store.parameters()[i];
      expect_masters(state, references[i], tolerance, kRate * kSteps);
      if (state.spec.dtype == DType::bf16) expect_rounded_weights(state);
    }
  }
}

/// All that two steps leave: weights, masters, moments, and the gradients' norm.
std::vector<std::byte> bytes_after_steps(DType dtype, int threads) {
  MemoryPool pool;
  const ParameterStore store(pool, specs(dtype));
  store.initialize(4, threads);
  std::vector<double> norms;
  for (int64_t t = 1; t <= 2; ++t) {
    fill_gradients(store, 0.3 * static_cast<double>(t));
    norms.push_back(gradient_norm(store, threads));
    adamw_step(store, {}, {.step = t, .learning_rate = 1e-2, .gradient_scale = 1 / norms.back()},
               threads);
  }
  const auto norm_bytes = std::as_bytes(std::span(norms));
  std::vector<std::byte> bytes(norm_bytes.begin(), norm_bytes.end());
  for (const ParameterState& state : store.parameters()) {
    for (const Tensor& tensor :
         {state.weight, state.master, state.first_moment, state.second_moment}) {
      bytes.insert(bytes.end(), tensor.raw(), tensor.raw() + tensor.bytes());
    }
  }
  return bytes;
}

TEST(AdamW, SameBitsWithAnyNumberOfThreads) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto one = bytes_after_steps(dtype, 1);
    for (const int threads : {2, 3, 5, 8}) {
      EXPECT_TRUE(bytes_after_steps(dtype, threads) == one)
          << dtype_name(dtype) << ", " << threads << " threads";
    }
  }
}

TEST(AdamW, DecayRules) {
  const auto parameters = specs(DType::f32);
  const auto decayed = [&](DecayRule rule) {
    OptimizerConfig config;
    config.decay_rule = rule;
    std::vector<bool> result;
    for (const ParameterSpec& spec : parameters) result.push_back(decays(config, spec));
    return result;
  };
  EXPECT_EQ(decayed(DecayRule::all), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(decayed(DecayRule::matrices), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(decayed(DecayRule::no_embedding), (std::vector<bool>{false, true, false, true}));
}

TEST(GradientNorm, IsTheEuclideanNormOfAllGradients) {
  MemoryPool pool;
  const ParameterStore store(pool, specs(DType::f32));
  fill_gradients(store, 2);
  double squares = 0;
  for (const ParameterState& state : store.parameters()) {
    for (const float g : state.gradient.values<float>()) squares += double{g} * g;
  }
  EXPECT_NEAR(gradient_norm(store, 2), std::sqrt(squares), 1e-12 * std::sqrt(squares));
  store.zero_gradients(2);
  EXPECT_EQ(gradient_norm(store, 2), 0);
}

TEST(Schedule, WarmsUpAndDecays) {
  OptimizerConfig config;
  config.learning_rate = 1;
  config.minimum_learning_rate = 0.1;
  config.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 5, 110), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 60, 110), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(config, 110, 110), 0.1);
  config.schedule = Schedule::linear;
  EXPECT_DOUBLE_EQ(learning_rate(config, 35, 110), 1 - 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 110, 110), 0.1);
  config.schedule = Schedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 110), 1);
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 110), 1);
}

TEST(Clipping, BringsLargeNormsDownAndMayWaitForTheWarmup) {
  OptimizerConfig config;
  config.clip_norm = 2;
  config.warmup_steps = 10;
  EXPECT_EQ(clip_factor(config, 1.5, 1), 1);
  EXPECT_EQ(clip_factor(config, 8, 1), 0.25);
  config.clip_after_warmup = true;
  EXPECT_EQ(clip_factor(config, 8, 10), 1);
  EXPECT_EQ(clip_factor(config, 8, 11), 0.25);
  config.clip_norm = 0;
  EXPECT_EQ(clip_factor(config, 8, 11), 1);
}

TEST(ParameterStore, TakesWhatItsSizesSay) {
  MemoryPool pool;
  MemoryLayout layout;
  for (const int64_t bytes : ParameterStore::allocation_sizes(specs(DType::bf16))) {
    layout.allocate(bytes);
  }
  const ParameterStore store(pool, specs(DType::bf16));
  EXPECT_EQ(pool.in_use(), layout.in_use());
  EXPECT_EQ(pool.extent(), layout.extent());
}

TEST(ParameterStore, ParametersDoNotShareMemory) {
  MemoryPool pool;
  const ParameterStore store(pool, specs(DType::bf16));
  store.initialize(1, 1);
  const auto& [embedding, matrix, norm] =
      std::tie(store.parameters()[0], store.parameters()[1], store.parameters()[2]);
  norm.master.fill_zero();
  std::memset(embedding.master.raw(), 0xff, static_cast<size_t>(embedding.master.bytes()));
  const Tensor again(pool, matrix.spec.shape, DType::f32);
  initialize(matrix.spec, 1, again, 1);
  EXPECT_TRUE(std::ranges::equal(matrix.master.values<float>(), again.values<float>()));
  EXPECT_THROW(store.find("nothing"), InternalError);
}

}  // namespace
}  // namespace tessera
