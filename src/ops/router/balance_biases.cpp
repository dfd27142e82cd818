#include "ops/router/balance_biases.h"

#include "ops/router/balance_biases_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

bool is_wide_vector(const Spec& spec) {
  return spec.shape.rank() == 1 && (spec.dtype == DType::f32 || spec.dtype == DType::f64);
}

/// Changes all biases unless all counts are 0. arguments(T{}): a BalanceStep or a BalanceBySign.
template <typename Arguments>
void step_biases(const Execution& execution, Arguments&& arguments) {
  run_wide_kernel(
      execution, execution.inputs[0].dtype(), arguments,
      [&]<typename Vendor>(Vendor, const auto& balance) {
        change_biases_device<Vendor>(balance, *execution.stream);
      },
      [](const auto& balance) {
        double total = 0;
        for (int64_t c = 0; c < balance.classes; ++c) {
          total += static_cast<double>(balance.counts[c]);
        }
        if (total == 0) return;
        for (int64_t c = 0; c < balance.classes; ++c) balance.change(c, total);
      });
}

/// inputs: the biases and the two moments, which run() changes, then the step and the counts.
class StepBalance final : public Operation {
 public:
  explicit StepBalance(const BalanceController& controller) : controller_(controller) {}
  std::string_view name() const override { return "step_balance"; }
  std::string labels(std::span<const Spec>) const override {
    return "u!, E! -> += E!, += E!, += E!";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 5 && is_wide_vector(inputs[0]),
                   "biases [classes] in f32 or f64, two moments, a step and counts are expected");
    for (size_t i = 1; i < 3; ++i) {
      TESSERA_EXPECT(*this, is_like(inputs[i], inputs[0]), "a moment {} of biases {}",
                     text_of(inputs[i]), text_of(inputs[0]));
    }
    TESSERA_EXPECT(
        *this,
        is_like(inputs[3], {{1}, DType::f64}) && is_like(inputs[4], {inputs[0].shape, DType::i32}),
        "a step {} and counts {} for {} classes", text_of(inputs[3]), text_of(inputs[4]),
        inputs[0].shape[0]);
    return {};
  }
  std::vector<int> updated_inputs() const override { return {0, 1, 2}; }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    step_biases(execution, [&]<typename T>(T) -> BalanceStep<T> {
      return {.classes = inputs[0].elements(),
              .rate = controller_.rate,
              .beta1 = controller_.beta1,
              .beta2 = controller_.beta2,
              .epsilon = controller_.epsilon,
              .counts = inputs[4].pointer<int32_t>(),
              .step = inputs[3].pointer<double>(),
              .biases = inputs[0].pointer<T>(),
              .first_moment = inputs[1].pointer<T>(),
              .second_moment = inputs[2].pointer<T>()};
    });
  }

 private:
  BalanceController controller_;
};

/// inputs: the biases, which run() changes, and the counts.
class BalanceSign final : public Operation {
 public:
  explicit BalanceSign(double rate) : rate_(rate) {}
  std::string_view name() const override { return "balance_by_sign"; }
  std::string labels(std::span<const Spec>) const override { return "E! -> += E!"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 2 && is_wide_vector(inputs[0]) &&
                       is_like(inputs[1], {inputs[0].shape, DType::f64}),
                   "biases [classes] in f32 or f64 and counts f64 [classes] are expected");
    return {};
  }
  std::vector<int> updated_inputs() const override { return {0}; }

  void run(const Execution& execution) const override {
    step_biases(execution, [&]<typename T>(T) -> BalanceBySign<T> {
      return {execution.inputs[0].elements(), rate_, execution.inputs[1].pointer<double>(),
              execution.inputs[0].pointer<T>()};
    });
  }

 private:
  double rate_;
};

}  // namespace

void step_balance(Builder& builder, const BalanceState& state, Value counts,
                  const BalanceController& controller) {
  builder.apply(std::make_shared<StepBalance>(controller),
                {state.biases, state.first_moment, state.second_moment, state.step, counts});
}

void balance_by_sign(Builder& builder, Value biases, Value counts, double rate) {
  builder.apply(std::make_shared<BalanceSign>(rate), {biases, counts});
}

}  // namespace tessera
