#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "inference/decoder.h"
#include "model/model.h"
#include "ops/host_target.h"
#include "state/parameter_store.h"
#include "support/run_program.h"
#include "support/tested_devices.h"
#include "train/parity/parity_errors.h"
#include "train/parity/reference_model.h"
#include "train/training_step.h"

// Tessera's mathematics against an implementation that is not ours: the same weights and tokens
// give the logits, losses, gradients and trained weights that Hugging Face transformers and PyTorch
// give.

namespace tessera::testing {
namespace {

/// A reference model's training program with its weights, ready to run.
class ParityMachine {
 public:
  ParityMachine(const ReferenceModel& reference, DType dtype, const OptimizerConfig& optimizer = {},
                const std::optional<Emulation>& device = {})
      : programs(programs_of(reference, dtype, optimizer)),
        runtime(make_runtime(host_target(2), device)),
        executor(programs.list(), programs.actions(), runtime),
        store(store_of(programs, executor)),
        step(programs, executor, store) {
    for (const ParameterSpec& parameter : store.parameters()) {
      std::vector<float> values = reference.expected("initial/" + parameter.name);
      EXPECT_EQ(static_cast<int64_t>(values.size()),
                store.memory(parameter.name, Kept::master).elements());
      const Tensor master(parameter.shape, store.memory(parameter.name, Kept::master).dtype());
      convert(Tensor::wrap(values.data(), parameter.shape, DType::f32), master);
      upload({master.raw(), static_cast<size_t>(master.bytes())},
             store.memory(parameter.name, Kept::master));
    }
    store.masters_to_weights();
  }

  std::vector<double> values(const Tensor& tensor) { return as_doubles(on_host(tensor)); }

  const ParameterList& parameters() const { return programs.model.parameters; }

  /// The units' weights, for decoders.
  GivenTensors weights() const {
    GivenTensors units;
    for (const ParameterUnit& unit : parameters().units()) {
      units.emplace(unit.name, executor.tensor(unit.name, programs.update_number()));
    }
    return units;
  }

 private:
  static StepPrograms programs_of(const ReferenceModel& reference, DType dtype,
                                  const OptimizerConfig& optimizer) {
    return step_programs(
        write_training(reference.config(), dtype, {reference.sequences(), reference.context()}, {}),
        optimizer);
  }

  StepPrograms programs;

 public:
  Runtime runtime;
  Executor executor;
  ParameterStore store;
  TrainingStep step;
};

/// The logits of every sequence, fed in pieces of `piece` tokens.
std::vector<double> logits_of(ParityMachine& machine, const ReferenceModel& reference, DType dtype,
                              int64_t piece) {
  std::vector<double> logits;
  const Batch batch = reference.batch(0);
  for (int64_t row = 0; row < reference.sequences(); ++row) {
    Decoder decoder(reference.config(), dtype, machine.weights(), reference.context(),
                    machine.runtime);
    for (int64_t begin = 0; begin < reference.context(); begin += piece) {
      const int32_t* first = batch.tokens.data() + row * reference.context() + begin;
      const int64_t count = std::min(piece, reference.context() - begin);
      const auto part = machine.values(decoder.feed({first, static_cast<size_t>(count)}));
      logits.insert(logits.end(), part.begin(), part.end());
    }
  }
  return logits;
}

class Transformers : public ::testing::TestWithParam<std::string> {};

TEST_P(Transformers, Logits) {
  const ReferenceModel reference(GetParam());
  const std::vector<float> expected = reference.expected("logits");
  for (const DType dtype : {DType::f32, DType::f64}) {
    ParityMachine machine(reference, dtype);
    for (const int64_t piece : {reference.context(), int64_t{5}, int64_t{1}}) {
      EXPECT_LT(largest_error(logits_of(machine, reference, dtype, piece), expected),
                kParityTolerance)
          << dtype_name(dtype) << ", " << piece << " tokens at once";
    }
  }
}

TEST_P(Transformers, LogitsInBfloat16AreAsNearAsTransformersAre) {
  const ReferenceModel reference(GetParam());
  const std::vector<float> expected = reference.expected("logits");
  const std::vector<float> theirs = reference.expected("logits_bf16");
  ParityMachine machine(reference, DType::bf16);
  const double error =
      mean_error(logits_of(machine, reference, DType::bf16, reference.context()), expected);
  const double their_error =
      mean_error(std::vector<double>(theirs.begin(), theirs.end()), expected);
  EXPECT_GT(error, 1e-4);  // it was not computed in f32
  EXPECT_LT(error, kRoundingSlack * their_error);
}

/// Compares the losses of the first batch and the gradients of all parameters.
void expect_losses_and_gradients(ParityMachine& machine, const ReferenceModel& reference,
                                 const std::string& what) {
  const std::vector<Batch> batches{reference.batch(0)};
  machine.step.forward_backward(batches);
  const StepResults losses = machine.step.results().wait();
  const double loss = reference.expected("loss")[0];
  EXPECT_NEAR(losses.cross_entropy, loss, kParityTolerance * loss) << what;
  const double balance = reference.expected("balance_loss")[0];
  EXPECT_NEAR(losses.balance, balance, kParityTolerance * balance) << what;
  EXPECT_EQ(balance > 0, reference.config().balance_coefficient > 0);
  for (const ParameterSpec& parameter : machine.store.parameters()) {
    if (!machine.store.memory(parameter.name, Kept::gradient).defined()) continue;
    EXPECT_LT(largest_error(machine.values(machine.store.memory(parameter.name, Kept::gradient)),
                            reference.expected("gradient/" + parameter.name)),
              kParityTolerance)
        << parameter.name << " in " << what;
  }
}

TEST_P(Transformers, LossesAndEveryGradient) {
  const ReferenceModel reference(GetParam());
  for (const DType dtype : {DType::f32, DType::f64}) {
    ParityMachine machine(reference, dtype);
    expect_losses_and_gradients(machine, reference, std::string(dtype_name(dtype)));
  }
}

TEST_P(Transformers, LossesAndEveryGradientOnADevice) {
  const ReferenceModel reference(GetParam());
  for (const Emulation& device : every_device()) {
    ParityMachine machine(reference, DType::f32, {}, device);
    expect_losses_and_gradients(machine, reference, describe(device));
  }
}

/// Compares the loss and the gradients of a model in bf16 with transformers' in f32: the errors are
/// about as large as those of transformers in bf16.
void expect_rounded_gradients(ParityMachine& machine, const ReferenceModel& reference) {
  const std::vector<Batch> batches{reference.batch(0)};
  machine.step.forward_backward(batches);
  const StepResults losses = machine.step.results().wait();
  const double loss = reference.expected("loss")[0];
  EXPECT_NEAR(losses.cross_entropy, loss, reference.loss_tolerance() * loss);
  for (const ParameterSpec& parameter : machine.store.parameters()) {
    if (!machine.store.memory(parameter.name, Kept::gradient).defined()) continue;
    const std::vector<float> expected = reference.expected("gradient/" + parameter.name);
    const double error =
        mean_error(machine.values(machine.store.memory(parameter.name, Kept::gradient)), expected);
    const double their_error = reference.expected_error(parameter.name);
    EXPECT_GT(error, 1e-4) << parameter.name;  // it was not computed in f32
    EXPECT_LT(error, kRoundingSlack * their_error) << parameter.name;
  }
}

TEST_P(Transformers, GradientsInBfloat16AreAsNearAsTransformersAre) {
  const ReferenceModel reference(GetParam());
  ParityMachine machine(reference, DType::bf16);
  expect_rounded_gradients(machine, reference);
}

TEST_P(Transformers, GradientsInBfloat16OnADeviceAreAsNearAsTransformersAre) {
  const ReferenceModel reference(GetParam());
  for (const Emulation& device : every_device()) {
    SCOPED_TRACE(describe(device));
    ParityMachine machine(reference, DType::bf16, {}, device);
    expect_rounded_gradients(machine, reference);
  }
}

TEST_P(Transformers, WeightsAfterStepsOfAdamW) {
  const ReferenceModel reference(GetParam());
  const OptimizerConfig optimizer = reference.optimizer();
  ParityMachine machine(reference, DType::f32, optimizer);
  for (int64_t i = 0; i < reference.steps(); ++i) {
    const std::vector<Batch> batches{reference.batch(i)};
    machine.step.forward_backward(batches);
    EXPECT_EQ(machine.step.update(optimizer, {.step = i + 1, .steps = reference.steps()}), 1e-3);
  }
  for (const ParameterSpec& parameter : machine.store.parameters()) {
    if (!machine.store.memory(parameter.name, Kept::gradient).defined()) continue;
    const std::vector<float> before = reference.expected("initial/" + parameter.name);
    const std::vector<float> after = reference.expected("trained/" + parameter.name);
    EXPECT_GT(mean_error(std::vector<double>(before.begin(), before.end()), after),
              10 * kParityTolerance)
        << parameter.name;  // it was trained
    EXPECT_LT(
        largest_error(machine.values(machine.store.memory(parameter.name, Kept::master)), after),
        kParityTolerance)
        << parameter.name;
  }
}

// ---- ZAYA1 alone

std::vector<std::string> zaya_models() {
  std::vector<std::string> names = ReferenceModel::names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("zaya"); });
  return names;
}

std::vector<float> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

class TransformersZaya : public ::testing::TestWithParam<std::string> {};

/// Prompts shorter than, as long as and longer than what the convolutions reach back to, and the
/// tokens that follow greedily, each from what the layers keep of those before.
TEST_P(TransformersZaya, DecodesTheSameTokensWithTheSameLogits) {
  const ReferenceModel reference(GetParam());
  const auto vocabulary = static_cast<size_t>(reference.config().vocabulary_size);
  for (const DType dtype : {DType::f32, DType::f64}) {
    ParityMachine machine(reference, dtype);
    for (const int length : {1, 2, 5}) {
      SCOPED_TRACE(fmt::format("{} tokens in {}", length, dtype_name(dtype)));
      const std::string of = fmt::format("decode/{}/", length);
      std::vector<int32_t> given = reference.expected_tokens(of + "prompt");
      const std::vector<int32_t> tokens = reference.expected_tokens(of + "tokens");
      std::vector<double> logits;
      Decoder decoder(reference.config(), dtype, machine.weights(), 64, machine.runtime);
      for (const int32_t token : tokens) {
        std::vector<double> all = machine.values(decoder.feed(given));
        all.erase(all.begin(), all.end() - static_cast<int64_t>(vocabulary));
        const auto best = std::ranges::max_element(all) - all.begin();
        ASSERT_EQ(best, token);
        given = {static_cast<int32_t>(best)};
        logits.insert(logits.end(), all.begin(), all.end());
      }
      EXPECT_LT(largest_error(logits, rounded(reference.expected_f64("f64/" + of + "logits"))),
                kParityTolerance);
    }
  }
}

/// In f64 against transformers in f64.
TEST_P(TransformersZaya, LossAndEveryGradientInDoublePrecision) {
  const ReferenceModel reference(GetParam());
  ParityMachine machine(reference, DType::f64);
  const std::vector<Batch> batches{reference.batch(0)};
  machine.step.forward_backward(batches);
  const double loss = reference.expected_f64("f64/loss")[0];
  EXPECT_NEAR(machine.step.results().wait().cross_entropy, loss, 1e-9 * loss);
  for (const ParameterSpec& parameter : machine.store.parameters()) {
    if (!machine.store.memory(parameter.name, Kept::gradient).defined()) continue;
    EXPECT_LT(largest_error(machine.values(machine.store.memory(parameter.name, Kept::gradient)),
                            rounded(reference.expected_f64("f64/gradient/" + parameter.name))),
              1e-6)
        << parameter.name;
  }
}

/// A token that visits no expert gets its input: formulas of other public ports, not transformers.
TEST(TransformersZayaSkipInput, LossAndEveryGradientAreThoseOfTheFormulas) {
  const ReferenceModel reference("zaya", SkipExpert::input);
  ParityMachine machine(reference, DType::f64);
  const std::vector<Batch> batches{reference.batch(0)};
  machine.step.forward_backward(batches);
  const double loss = reference.expected_f64("f64/skip_input/loss")[0];
  EXPECT_NEAR(machine.step.results().wait().cross_entropy, loss, 1e-9 * loss);
  EXPECT_GT(std::abs(reference.expected_f64("f64/loss")[0] - loss), 1e-3);
  for (const ParameterSpec& parameter : machine.store.parameters()) {
    if (!machine.store.memory(parameter.name, Kept::gradient).defined()) continue;
    EXPECT_LT(
        largest_error(machine.values(machine.store.memory(parameter.name, Kept::gradient)),
                      rounded(reference.expected_f64("f64/skip_input/gradient/" + parameter.name))),
        1e-6)
        << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransformersZaya, ::testing::ValuesIn(zaya_models()),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Families, Transformers, ::testing::ValuesIn(ReferenceModel::names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::testing
