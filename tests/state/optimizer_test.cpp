#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>

#include <gtest/gtest.h>

#include "ops/update/sum_of_squares.h"
#include "state/schedule.h"
#include "state/update_machine.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// Parameters of four kinds in three units.
ParameterList some_parameters(Builder& builder, DType matrix) {
  ParameterList list;
  const DType wide = accumulation_dtype(matrix);
  list.declare(builder, "embedding", {40, 17}, {}, matrix, ParameterRole::embedding,
               {.deviation = 0.5}, "a");
  list.declare(builder, "matrix", {65, 33}, {}, matrix, ParameterRole::matrix, {.deviation = 0.5},
               "b");
  list.declare(builder, "norm", {33}, {}, wide, ParameterRole::norm, {.constant = 1}, "b");
  // Several threads' shares of AdamW's elements and of the norm's blocks, a multiple of neither.
  list.declare(builder, "wide", {5, 66667}, {}, matrix, ParameterRole::matrix, {.deviation = 0.5},
               "c");
  return list;
}

ParameterList some_parameters(DType matrix) {
  Program program;
  Builder builder(program);
  return some_parameters(builder, matrix);
}

/// The update of some_parameters().
class SomeUpdate : public testing::UpdateMachine {
 public:
  explicit SomeUpdate(DType dtype, const OptimizerConfig& config = {}, int threads = 2,
                      std::vector<StepSum> losses = {})
      : UpdateMachine(some_parameters(dtype), config, threads, std::move(losses)) {}
};

/// The elements of a wide tensor in f64.
std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> result;
  dispatch_wide(tensor.dtype(), [&](auto type) {
    const auto values = tensor.values<decltype(type)>();
    result.assign(values.begin(), values.end());
  });
  return result;
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
void expect_masters(const ParameterStore& store, const ParameterSpec& spec,
                    const Reference& reference, double tolerance, double moved) {
  const std::vector<double> masters = numbers(store.memory(spec.name, Kept::master));
  ASSERT_EQ(masters.size(), reference.weight.size());
  for (size_t i = 0; i < masters.size(); ++i) {
    const double expected = reference.weight[i];
    ASSERT_NEAR(masters[i], expected, tolerance * std::max(std::abs(expected), moved))
        << spec.name << " in " << dtype_name(spec.dtype) << ", element " << i;
  }
}

void expect_rounded_weights(const ParameterStore& store, const ParameterSpec& spec) {
  const Tensor master = store.memory(spec.name, Kept::master);
  const Tensor weight = store.memory(spec.name, Kept::weight);
  for (int64_t i = 0; i < master.elements(); ++i) {
    ASSERT_EQ(weight.data<BFloat16>()[i].bits, BFloat16(master.data<float>()[i]).bits);
  }
}

TEST(AdamW, FollowsItsDefinitionInEveryType) {
  constexpr int64_t kSteps = 5;
  constexpr double kRate = 1e-2, kLimit = 5;
  const OptimizerConfig config;
  for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, double>>{
           {DType::f64, 1e-13}, {DType::f32, 2e-6}, {DType::bf16, 2e-6}}) {
    SomeUpdate machine(dtype, config);
    const ParameterStore& store = machine.store;
    store.initialize(4, 2);
    std::vector<Reference> references;
    for (const ParameterSpec& spec : store.parameters()) {
      references.emplace_back(numbers(store.memory(spec.name, Kept::master)));
    }
    for (int64_t t = 1; t <= kSteps; ++t) {
      testing::fill_random_gradients(store, 0.1 * static_cast<double>(t));
      machine.step(t, kRate, kLimit);
      ASSERT_GT(machine.norm(), kLimit) << "nothing was clipped";
      const double scale = kLimit / machine.norm();
      for (size_t i = 0; i < references.size(); ++i) {
        const ParameterSpec& spec = store.parameters()[i];
        references[i].step(config, t, kRate, scale,
                           numbers(store.memory(spec.name, Kept::gradient)), decays(config, spec));
      }
    }
    for (size_t i = 0; i < references.size(); ++i) {
      const ParameterSpec& spec = store.parameters()[i];
      expect_masters(store, spec, references[i], tolerance, kRate * kSteps);
      if (spec.dtype == DType::bf16) expect_rounded_weights(store, spec);
    }
  }
}

/// All that two steps leave: weights, masters, moments, and the gradients' norm.
std::vector<std::byte> bytes_after_steps(DType dtype, int threads) {
  SomeUpdate machine(dtype, {}, threads);
  const ParameterStore& store = machine.store;
  store.initialize(4, threads);
  std::vector<double> norms;
  for (int64_t t = 1; t <= 2; ++t) {
    testing::fill_random_gradients(store, 0.3 * static_cast<double>(t));
    machine.step(t, 1e-2, 1.0);
    norms.push_back(machine.norm());
  }
  const auto norm_bytes = std::as_bytes(std::span(norms));
  std::vector<std::byte> bytes(norm_bytes.begin(), norm_bytes.end());
  for (const ParameterSpec& spec : store.parameters()) {
    for (const Kept kind : {Kept::weight, Kept::master, Kept::first_moment, Kept::second_moment}) {
      const Tensor tensor = store.memory(spec.name, kind);
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
  const ParameterList parameters = some_parameters(DType::f32);
  const auto decayed = [&](DecayRule rule) {
    OptimizerConfig config;
    config.decay_rule = rule;
    std::vector<bool> result;
    for (const ParameterSpec& spec : parameters.specs()) result.push_back(decays(config, spec));
    return result;
  };
  EXPECT_EQ(decayed(DecayRule::all), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(decayed(DecayRule::matrices), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(decayed(DecayRule::no_embedding), (std::vector<bool>{false, true, false, true}));
}

/// Bytes of all weights, masters and moments.
std::vector<std::byte> state_bytes(const ParameterStore& store) {
  std::vector<std::byte> bytes;
  for (const ParameterSpec& spec : store.parameters()) {
    for (const Kept kind : {Kept::weight, Kept::master, Kept::first_moment, Kept::second_moment}) {
      const Tensor tensor = store.memory(spec.name, kind);
      bytes.insert(bytes.end(), tensor.raw(), tensor.raw() + tensor.bytes());
    }
  }
  return bytes;
}

TEST(UpdateProgram, AStepThatIsNotFiniteChangesNothing) {
  const StepSum loss{"sum:loss", {1}};
  SomeUpdate machine(DType::bf16, {}, 2, {loss});
  machine.store.initialize(4, 2);
  const auto before = state_bytes(machine.store);
  double& sum = *machine.executor.tensor(loss.name, 1).data<double>();
  testing::fill_random_gradients(machine.store, 1);
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    sum = bad;
    machine.step(1, 1e-2, 1.0);
    EXPECT_TRUE(std::isfinite(machine.norm()));
    EXPECT_TRUE(state_bytes(machine.store) == before) << "a loss of " << bad;
  }
  sum = 1;
  machine.store.memory("matrix", Kept::gradient).data<float>()[7] = std::nanf("");
  machine.step(1, 1e-2, 0);
  EXPECT_TRUE(std::isnan(machine.norm()));
  EXPECT_TRUE(state_bytes(machine.store) == before) << "a gradient that is NaN";
  machine.store.memory("matrix", Kept::gradient).data<float>()[7] = 1;
  machine.step(1, 1e-2, 0);
  EXPECT_FALSE(state_bytes(machine.store) == before);
}

TEST(UpdateProgram, TheNormIsTheEuclideanOneOfAllGradients) {
  SomeUpdate machine(DType::f32, {}, 2, {{"sum:loss", {1}}});
  const ParameterStore& store = machine.store;
  testing::fill_random_gradients(store, 2);
  double squares = 0;
  for (const ParameterSpec& spec : store.parameters()) {
    for (const float g : store.memory(spec.name, Kept::gradient).values<float>())
      squares += double{g} * g;
  }
  machine.step(1, 0);
  EXPECT_NEAR(machine.norm(), std::sqrt(squares), 1e-12 * std::sqrt(squares));
  *machine.executor.tensor("sum:loss", 0).data<double>() = 3;
  machine.zero();
  machine.step(1, 0);
  EXPECT_EQ(machine.norm(), 0);
  EXPECT_EQ(*machine.executor.tensor("sum:loss", 0).data<double>(), 0);
}

TEST(UpdateProgram, CostsAreThoseOfItsOperands) {
  const SomeUpdate machine(DType::bf16);
  double elements = 0, rounded = 0, sums = 0;
  for (const ParameterUnit& unit : machine.parameters.units()) {
    elements += static_cast<double>(unit.elements);
    if (is_rounded(unit)) rounded += static_cast<double>(unit.elements);
  }
  for (const ParameterSpec& spec : machine.parameters.specs()) {
    sums += static_cast<double>(squares_sums(spec.shape.elements()));
  }
  const auto bytes = [](const Program& program, std::string_view name) {
    for (const Node& node : program.nodes()) {
      if (node.operation->name() != name) continue;
      return node.operation->cost(program.specs(node.inputs), program.specs(node.outputs)).bytes;
    }
    return -1.0;
  };
  EXPECT_EQ(bytes(machine.start, "zero"), 4 * elements);
  EXPECT_EQ(bytes(machine.update.program, "sum_of_squares"), 4 * elements + 8 * sums);
  EXPECT_EQ(bytes(machine.update.program, "adamw"), 7 * 4 * elements + 2 * rounded);
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

TEST(Clipping, MayWaitForTheWarmup) {
  OptimizerConfig config;
  config.clip_norm = 2;
  config.warmup_steps = 10;
  EXPECT_EQ(clip_norm(config, 1), 2);
  config.clip_after_warmup = true;
  EXPECT_EQ(clip_norm(config, 10), 0);
  EXPECT_EQ(clip_norm(config, 11), 2);
}

TEST(Clipping, BringsLargeNormsDownAndLeavesSmallOnes) {
  for (const auto& [limit, factor] :
       {std::pair(0.0, 1.0), std::pair(0.25, 0.25), std::pair(2.0, 1.0)}) {
    SomeUpdate machine(DType::f64, {.weight_decay = 0, .beta1 = 0});
    machine.zero();
    machine.store.memory("matrix", Kept::gradient).data<double>()[3] = -1;
    machine.step(1, 1e-3, limit);
    EXPECT_EQ(machine.norm(), 1);
    EXPECT_DOUBLE_EQ(machine.store.memory("matrix", Kept::first_moment).data<double>()[3], -factor);
  }
}

TEST(ParameterStore, ParametersDoNotShareMemory) {
  const SomeUpdate machine(DType::bf16);
  const ParameterStore& store = machine.store;
  store.initialize(1, 1);
  const std::vector<const KeptTensor*> masters = store.tensors({Kept::master});
  const KeptTensor &embedding = *masters[0], &matrix = *masters[1], &norm = *masters[2];
  norm.memory.fill_zero();
  std::memset(embedding.memory.raw(), 0xff, static_cast<size_t>(embedding.memory.bytes()));
  const Tensor again(matrix.parameter->shape, DType::f32);
  initialize(*matrix.parameter, 1, TensorPiece(again.shape()), again, 1);
  EXPECT_TRUE(std::ranges::equal(matrix.memory.values<float>(), again.values<float>()));
  EXPECT_THROW(store.memory("nothing", Kept::weight), InternalError);
}

}  // namespace
}  // namespace tessera
