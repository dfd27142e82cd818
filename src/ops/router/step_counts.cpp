#include "ops/router/balance_counts.h"
#include "ops/router/router_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

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
      return for_vendor(*execution.stream, [&](auto vendor) {
        step_counts_device<decltype(vendor)>(sum.elements(), sum.pointer<double>(),
                                             counts.pointer<int32_t>(), mean.pointer<double>(),
                                             *execution.stream);
      });
    }
    // mean[e] = sum[e] * Σ_e counts[e] / Σ_e sum[e]
    double all = 0, own = 0;
    for (const double element : sum.values<double>()) all += element;
    for (const int32_t count : counts.values<int32_t>()) own += count;
    for (int64_t e = 0; e < mean.elements(); ++e) {
      mean.data<double>()[e] = all == 0 ? 0 : sum.data<double>()[e] * own / all;
    }
  }
};

}  // namespace

Value step_counts(Builder& builder, Value sum, Value counts) {
  const Value mean = builder.apply_single(std::make_shared<StepCounts>(), {sum, counts});
  // Kept, because later micro-batches change the sum: the mean cannot be computed from it again.
  builder.keep(mean, Keep::layer);
  return mean;
}

}  // namespace tessera
