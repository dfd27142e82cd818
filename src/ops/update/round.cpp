#include "ops/update/round.h"

#include <numeric>

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

/// inputs: the masters, then the weights, which are only written.
class RoundToWeights final : public Operation {
 public:
  explicit RoundToWeights(size_t count) : count_(count) {}
  std::string_view name() const override { return "round_to_weights"; }

  std::string labels(std::span<const Spec>) const override {
    return repeated("f#", count_) + " -> " + repeated("+= f#", count_);
  }
  /// Returns a rule in which every weight has the distribution of its master, which must not be
  /// partial.
  HandRule hand_rule() const override {
    return [](Axis, std::span<const TypeOnAxis> masters) {
      for (size_t i = 0; i < masters.size(); ++i) {
        if (masters[i].placement != Placement::partial) continue;
        throw DistributionError(
            fmt::format("round_to_weights: master {} is partial; expected its sum taken", i));
      }
      return std::vector<TypeOnAxis>(masters.begin(), masters.end());
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 * count_, "{} masters and weights", inputs.size());
    for (size_t i = 0; i < count_; ++i) {
      TESSERA_EXPECT(*this,
                     inputs[i].dtype == DType::f32 && inputs[count_ + i].dtype == DType::bf16 &&
                         inputs[i].shape == inputs[count_ + i].shape,
                     "a master {} {} of a weight {} {}", dtype_name(inputs[i].dtype),
                     inputs[i].shape.text(), dtype_name(inputs[count_ + i].dtype),
                     inputs[count_ + i].shape.text());
    }
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {})};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> weights(count_);
    std::iota(weights.begin(), weights.end(), static_cast<int>(count_));
    return weights;
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<RoundRow>(count_);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    // weight[e] = master[e], rounded to bf16
    for (size_t i = 0; i < count_; ++i) {
      const float* master = execution.inputs[i].data<float>();
      auto* weight = execution.inputs[count_ + i].data<BFloat16>();
      parallel_ranges(execution.runtime.threads(), execution.inputs[i].elements(), 1 << 16,
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t e = begin; e < end; ++e) {
                          weight[e] = static_cast<BFloat16>(master[e]);
                        }
                      });
    }
  }

 private:
  void run_on_device(const Execution& execution) const {
    std::vector<RoundRow> rows;
    for (size_t i = 0; i < count_; ++i) {
      if (execution.inputs[i].elements() == 0) continue;  // a unit that other ranks have
      rows.push_back({.count = execution.inputs[i].elements(),
                      .master = execution.inputs[i].pointer<float>(),
                      .weight = execution.inputs[count_ + i].pointer<BFloat16>()});
    }
    if (rows.empty()) return;
    const DeviceTable<RoundRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream,
               [&](auto vendor) { round_device<decltype(vendor)>(table, *execution.stream); });
  }

  size_t count_;
};

}  // namespace

void round_to_weights(Builder& builder, std::span<const Value> masters,
                      std::span<const Value> weights) {
  std::vector<Value> inputs(masters.begin(), masters.end());
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  builder.apply(std::make_shared<RoundToWeights>(masters.size()), std::move(inputs));
}

}  // namespace tessera
