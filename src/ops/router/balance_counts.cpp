#include "ops/router/balance_counts.h"

#include "ops/router/router_kernels.h"
#include "ops/router/split_tokens.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// input: indices i32 [tokens, k]; output: i32 [sets, experts].
class SetCounts final : public Operation {
 public:
  SetCounts(int64_t experts, int64_t sets) : experts_(experts), sets_(sets) {}
  std::string_view name() const override { return "set_counts"; }

  std::string labels(std::span<const Spec>) const override { return "(s n) k -> s E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 2,
        "one i32 matrix [tokens, k] is expected");
    TESSERA_EXPECT(*this, sets_ > 0 && inputs[0].shape[0] % sets_ == 0, "{} tokens in {} sets",
                   inputs[0].shape[0], sets_);
    return {{{sets_, experts_}, DType::i32}};
  }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{}: the tokens of one of several ranks are counted on the processor only; set "
        "run.device = \"cpu\" or model.balance_tokens = \"micro_batch\"",
        name());
  }

  void run(const Execution& execution) const override {
    const std::span<const int32_t> indices = execution.inputs[0].values<int32_t>();
    const std::span<int32_t> counts = execution.outputs[0].values<int32_t>();
    std::ranges::fill(counts, 0);
    // counts[set, e] = the number of the set's choices of expert e
    const size_t set_choices = indices.size() / static_cast<size_t>(sets_);
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto set = static_cast<int64_t>(i / set_choices);
      if (indices[i] < 0 || indices[i] >= experts_) continue;
      ++counts[static_cast<size_t>(set * experts_ + indices[i])];
    }
  }

 private:
  int64_t experts_;
  int64_t sets_;
};

/// inputs: the sum f64 [experts] and the counts i32 [experts]; output: f64 [experts].
class StepCounts final : public Operation {
 public:
  std::string_view name() const override { return "step_counts"; }

  std::string labels(std::span<const Spec>) const override { return "E!, E! -> E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 2 && inputs[0].dtype == DType::f64 &&
                       inputs[1].dtype == DType::i32 && inputs[0].shape == inputs[1].shape &&
                       inputs[0].shape.rank() == 1,
                   "a sum f64 [experts] and counts i32 [experts] are expected");
    return {{inputs[0].shape, DType::f64}};
  }

  void run(const Execution& execution) const override {
    const Tensor& sum = execution.inputs[0];
    const Tensor& counts = execution.inputs[1];
    const Tensor& mean = execution.outputs[0];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        step_counts_device<Vendor>(sum.elements(), sum.pointer<double>(), counts.pointer<int32_t>(),
                                   mean.pointer<double>(), *execution.stream);
      });
    }
    double step_choices = 0, batch_choices = 0;
    for (const double element : sum.values<double>()) step_choices += element;
    for (const int32_t count : counts.values<int32_t>()) batch_choices += count;
    for (int64_t e = 0; e < mean.elements(); ++e) {
      mean.data<double>()[e] =
          step_choices == 0 ? 0 : sum.data<double>()[e] * batch_choices / step_choices;
    }
  }
};

}  // namespace

Value set_counts(Builder& builder, Value indices, int64_t experts, int64_t sets) {
  const Value rank_counts =
      builder.apply_single(std::make_shared<SetCounts>(experts, sets), {indices});
  // On an axis that splits the sets, ranks have different sets, so nothing is summed.
  return sum_of_ranks(builder, rank_counts, {Placement::invariant, Placement::sharded});
}

Value step_counts(Builder& builder, Value sum, Value counts) {
  const Value mean = builder.apply_single(std::make_shared<StepCounts>(), {sum, counts});
  // Kept, because later micro-batches change the sum: the mean cannot be computed from it again.
  builder.keep(mean, Keep::layer);
  return mean;
}

}  // namespace tessera
