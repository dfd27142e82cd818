#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "model/attention_layer.h"
#include "model/model.h"
#include "model/small_configs.h"
#include "ops/host_target.h"
#include "support/program_run.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using testing::kVocabulary;
using testing::small_dense;
using testing::small_mixture;

/// What the two small models leave out.
std::vector<ModelConfig> variants() {
  ModelConfig pooled = small_mixture();
  pooled.renormalise_weights = true;
  pooled.balance_form = BalanceForm::pooled;
  pooled.balance_tokens = BalanceTokens::global_batch;
  pooled.norm = NormKind::layer;
  pooled.activation = Activation::gelu;
  pooled.clip_qkv = 0.5;
  pooled.tied_head = true;
  ModelConfig by_head = small_mixture();
  by_head.norm_weights = false;
  by_head.query_key_norm = QueryKeyNorm::head;
  by_head.rotary_fraction = 0.5;
  by_head.forced_uniform_routing = true;
  ModelConfig capped = small_mixture();
  capped.capacity_factor = 1.0;
  ModelConfig shared = small_mixture();
  shared.shared_experts = 2;
  shared.dense_layers = 1;
  shared.feed_forward_size = 10;
  shared.rope_scaling = RopeScaling::llama3;
  shared.rope_original_context = 8;
  return {pooled, by_head, capped, shared};
}

/// A training program with memory, ready to run.
class Machine {
 public:
  Machine(const ModelConfig& config, DType dtype, const Recompute& recompute,
          Kernels kernels = Kernels::fast, int64_t sequences = 2, int64_t context = 5)
      : runtime_(host_target(2, kernels)),
        training(write_training(config, dtype, {sequences, context, true}, recompute)) {
    frame = std::make_unique<testing::ProgramRun>(training.program, runtime_);
    const int64_t tokens = sequences * context;
    const CounterRandom random(3, "tokens");
    for (const Value input : {training.batch.tokens, training.batch.targets,
                              training.batch.positions, *training.batch.document_starts}) {
      frame->bind(input, Tensor({tokens}, DType::i32));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t position = t % context;
      at(training.batch.tokens)[t] = static_cast<int32_t>(random.bits(t) % kVocabulary);
      at(training.batch.targets)[t] =
          position + 1 == context ? -1 : static_cast<int32_t>(random.bits(t + 1) % kVocabulary);
      at(training.batch.positions)[t] = static_cast<int32_t>(position);
      at(*training.batch.document_starts)[t] = position >= 2 ? 2 : 0;
    }
    for (const Value seed : {training.target_seed, training.token_seed}) {
      const Tensor scalar({1}, accumulation_dtype(dtype));
      dispatch_wide(scalar.dtype(), [&](auto type) { *scalar.data<decltype(type)>() = 1; });
      frame->bind(seed, scalar);
    }
    const auto& parameters = training.outline.parameters;
    for (size_t i = 0; i < parameters.specs().size(); ++i) {
      const ParameterSpec& spec = parameters.specs()[i];
      const Tensor wide(spec.shape, accumulation_dtype(dtype));
      initialize(spec, 1, TensorPiece(spec.shape), wide, 2);
      convert(wide, (*frame)[parameters.values()[i]]);
    }
  }

  int32_t* at(Value value) { return (*frame)[value].data<int32_t>(); }

  void run() { frame->run(); }

  /// The sum of all losses, by the forward pass alone (f64 programs).
  double objective() {
    frame->forward();
    double total = 0;
    for (const Value loss : {training.loss, training.balance_loss, training.router_z_loss}) {
      if (loss) total += *(*frame)[loss].data<double>();
    }
    return total;
  }

  std::vector<std::byte> gradient_bytes() const {
    std::vector<std::byte> bytes;
    for (const Value parameter : training.outline.parameters.values()) {
      const Tensor& gradient = (*frame)[training.program.main_gradient(parameter)];
      bytes.insert(bytes.end(), gradient.raw(), gradient.raw() + gradient.bytes());
    }
    return bytes;
  }

  Runtime runtime_;
  Chunk training;
  std::unique_ptr<testing::ProgramRun> frame;
};

void check_model_gradients(const ModelConfig& config) {
  Machine machine(config, DType::f64, {});
  machine.run();
  const auto& parameters = machine.training.outline.parameters;
  std::vector<std::vector<double>> gradients;  // kept, since the forward pass adds to the head's
  for (const Value parameter : parameters.values()) {
    const Value gradient = machine.training.program.main_gradient(parameter);
    const auto entries = (*machine.frame)[gradient].values<double>();
    gradients.emplace_back(entries.begin(), entries.end());
  }
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const Tensor& weight = (*machine.frame)[parameters.values()[i]];
    const std::vector<double>& gradient = gradients[i];
    double largest = 1e-3;
    for (const double entry : gradient) largest = std::max(largest, std::abs(entry));
    // Every parameter, at a few of its entries.
    const CounterRandom random(5, parameters.specs()[i].name);
    for (uint64_t trial = 0; trial < 6; ++trial) {
      const int64_t at = static_cast<int64_t>(random.bits(trial) % weight.elements());
      double& entry = weight.data<double>()[at];
      const double before = entry;
      constexpr double kStep = 1e-5;
      entry = before + kStep;
      const double above = machine.objective();
      entry = before - kStep;
      const double below = machine.objective();
      entry = before;
      EXPECT_NEAR(gradient[static_cast<size_t>(at)], (above - below) / (2 * kStep), 1e-6 * largest)
          << parameters.specs()[i].name << " at " << at;
    }
  }
}

TEST(TrainingProgram, GradientsOfAMixtureAgreeWithFiniteDifferences) {
  check_model_gradients(small_mixture());
}

TEST(TrainingProgram, GradientsOfADenseModelAgreeWithFiniteDifferences) {
  check_model_gradients(small_dense());
}

TEST(TrainingProgram, GradientsOfVariantsAgreeWithFiniteDifferences) {
  for (const ModelConfig& config : variants()) check_model_gradients(config);
}

std::vector<Recompute> all_recomputes() {
  std::vector<Recompute> result;
  for (int bits = 0; bits < 16; ++bits) {
    result.push_back({.norm = (bits & 1) != 0,
                      .attention = (bits & 2) != 0,
                      .experts = (bits & 4) != 0,
                      .layer = (bits & 8) != 0});
  }
  return result;
}

void expect_same_bits(const ModelConfig& config, const std::vector<Recompute>& recomputes) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Machine plain(config, dtype, {});
    plain.run();
    for (const Recompute& recompute : recomputes) {
      Machine machine(config, dtype, recompute);
      machine.run();
      EXPECT_EQ(machine.gradient_bytes(), plain.gradient_bytes());
    }
  }
}

TEST(TrainingProgram, RecomputationChangesNoBit) {
  for (const ModelConfig& config : {small_mixture(), small_dense()}) {
    expect_same_bits(config, all_recomputes());
  }
  for (const ModelConfig& config : variants()) {
    expect_same_bits(config, {{.norm = true, .attention = true, .experts = true}, {.layer = true}});
  }
}

TEST(TrainingProgram, RecomputationSavesMemory) {
  struct Sizes {
    int64_t saved_bytes;
    int64_t arena_bytes;
  };
  ModelConfig config = small_mixture();
  config.layers = 12;
  const auto plan = [&](const Recompute& recompute) {
    const Chunk chunk = write_training(config, DType::bf16, {4, 64, true}, recompute);
    const Program* const programs[] = {&chunk.program};
    constexpr Action kPasses[] = {{.segment = Segment::forward}, {.segment = Segment::backward}};
    const MemoryPlan plan = plan_memory(programs, kPasses, host_target(2));
    return Sizes{plan.programs[0].saved_bytes, plan.arena_bytes};
  };
  const Sizes nothing = plan({});
  const Sizes norm = plan({.norm = true});
  const Sizes attention = plan({.attention = true});
  const Sizes experts = plan({.experts = true});
  const Sizes blocks = plan({.norm = true, .attention = true, .experts = true});
  const Sizes layer = plan({.layer = true});
  for (const auto bytes : {&Sizes::saved_bytes, &Sizes::arena_bytes}) {
    EXPECT_LT(norm.*bytes, nothing.*bytes);
    EXPECT_LT(attention.*bytes, nothing.*bytes);
    EXPECT_LT(experts.*bytes, nothing.*bytes);
    EXPECT_LT(blocks.*bytes, std::min({norm.*bytes, attention.*bytes, experts.*bytes}));
    EXPECT_LT(layer.*bytes, blocks.*bytes);
  }
  // A recomputed layer leaves two values alone, beside what lies outside of the layers: the stream,
  // [tokens, hidden] in bf16, and the router's logits and probabilities, [tokens, experts] in f32.
  const int64_t a_token = config.hidden_size * 2 + config.experts * 2 * 4;
  EXPECT_LT(layer.saved_bytes, (config.layers + 8) * 4 * 64 * a_token);
}

TEST(TrainingProgram, RotaryChannelsAreThoseThatTheFractionNames) {
  ModelConfig config = small_dense();
  config.head_dim = 100;
  for (int64_t channels = 2; channels <= 100; channels += 2) {
    config.rotary_fraction = static_cast<double>(channels) / 100;
    EXPECT_NO_THROW(validate(config));
    EXPECT_EQ(rotary_channels(config), channels);
  }
}

TEST(TrainingProgram, ANormsEpsilonIsAboveZero) {
  ModelConfig config = family_preset(Family::olmoe);
  config.norm_epsilon = 0;
  EXPECT_THROW(validate(config), Error);
  config.norm_epsilon = 1e-5;
  EXPECT_NO_THROW(validate(config));
}

TEST(TrainingProgram, InitialWeightsDependOnSeedAndNameAlone) {
  const auto specs = model_parameters(small_mixture(), DType::f32).specs();
  const Tensor one(specs[0].shape, DType::f32);
  const Tensor again(specs[0].shape, DType::f32);
  initialize(specs[0], 7, TensorPiece(specs[0].shape), one, 1);
  initialize(specs[0], 7, TensorPiece(specs[0].shape), again, 3);
  EXPECT_TRUE(std::ranges::equal(one.values<float>(), again.values<float>()));
  initialize(specs[0], 8, TensorPiece(specs[0].shape), again, 1);
  EXPECT_FALSE(std::ranges::equal(one.values<float>(), again.values<float>()));
}

TEST(TrainingProgram, TruncatedInitializationStaysWithinItsCutoff) {
  const ParameterSpec spec{
      .name = "weights", .shape = {200, 100}, .initialization = {.deviation = 0.02, .cutoff = 3}};
  const Tensor values(spec.shape, DType::f32);
  initialize(spec, 1, TensorPiece(spec.shape), values, 2);
  double sum = 0, squares = 0, largest = 0;
  for (const float value : values.values<float>()) {
    sum += value;
    squares += double{value} * value;
    largest = std::max(largest, std::abs(double{value}));
  }
  EXPECT_LE(largest, 0.06);
  EXPECT_GT(largest, 0.05);
  EXPECT_NEAR(sum / 20000, 0.0, 4 * 0.02 / std::sqrt(20000.0));
  // A normal cut at 3 deviations has 0.9866 of the deviation.
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.02 * 0.9866, 0.02 * 0.02);
}

}  // namespace
}  // namespace tessera
