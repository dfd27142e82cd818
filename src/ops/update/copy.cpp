#include "ops/update/copy.h"

#include <numeric>

#include "device/stream.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: the sources, then the targets, which are only written.
class CopyKept final : public Operation {
 public:
  explicit CopyKept(size_t count) : count_(count) {}
  std::string_view name() const override { return "copy_kept"; }

  std::string labels(std::span<const Spec>) const override {
    return repeated("f#", count_) + " -> " + repeated("+= f#", count_);
  }
  /// Every target lies as its source, which is no sum that has not been taken.
  HandRule hand_rule() const override {
    return [](Axis, std::span<const TypeOnAxis> sources) {
      for (size_t i = 0; i < sources.size(); ++i) {
        if (sources[i].placement != Placement::partial) continue;
        throw DistributionError(
            fmt::format("copy_kept: source {} is partial; expected its sum taken", i));
      }
      return std::vector<TypeOnAxis>(sources.begin(), sources.end());
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 * count_, "{} sources and targets", inputs.size());
    for (size_t i = 0; i < count_; ++i) {
      const Spec& source = inputs[i];
      const Spec& target = inputs[count_ + i];
      TESSERA_EXPECT(*this, source.dtype == target.dtype && source.shape == target.shape,
                     "a source {} {} of a target {} {}", dtype_name(source.dtype),
                     source.shape.text(), dtype_name(target.dtype), target.shape.text());
    }
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {})};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> targets(count_);
    std::iota(targets.begin(), targets.end(), static_cast<int>(count_));
    return targets;
  }
  void run(const Execution& execution) const override {
    for (size_t i = 0; i < count_; ++i) {
      const Tensor& source = execution.inputs[i];
      const Tensor& target = execution.inputs[count_ + i];
      if (execution.stream != nullptr) {
        execution.stream->copy(target.address(), source.address(), source.bytes());
      } else {
        target.copy_from(source);
      }
    }
  }

 private:
  size_t count_;
};

}  // namespace

void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets) {
  std::vector<Value> inputs(sources.begin(), sources.end());
  inputs.insert(inputs.end(), targets.begin(), targets.end());
  builder.apply(std::make_shared<CopyKept>(sources.size()), std::move(inputs));
}

}  // namespace tessera
