#include "ops/update/copy.h"

#include <cmath>
#include <numeric>

#include "device/stream.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// inputs: the scale if there is one, the sources, then the targets, which are only written.
class CopyKept final : public Operation {
 public:
  CopyKept(size_t count, bool scaled) : count_(count), scaled_(scaled) {}
  std::string_view name() const override { return "copy_kept"; }

  std::string labels(std::span<const Spec>) const override {
    return (scaled_ ? "u!, " : "") + repeated("f#", count_) + " -> " + repeated("+= f#", count_);
  }
  /// Returns a rule in which every target has the distribution of its source, which must not be
  /// partial. The scale is the same on all ranks.
  HandRule hand_rule() const override {
    return [this](Axis, std::span<const TypeOnAxis> inputs) {
      if (scaled_ && !inputs[0].same_on_ranks()) {
        throw DistributionError(fmt::format(
            "copy_kept: the scale is {}; expected one number for all ranks", inputs[0].text()));
      }
      const std::span<const TypeOnAxis> sources = inputs.last(count_);
      for (size_t i = 0; i < sources.size(); ++i) {
        if (sources[i].placement != Placement::partial) continue;
        throw DistributionError(
            fmt::format("copy_kept: source {} is partial; expected its sum taken", i));
      }
      return std::vector<TypeOnAxis>(sources.begin(), sources.end());
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == first_source() + 2 * count_, "{} inputs", inputs.size());
    TESSERA_EXPECT(
        *this, !scaled_ || (inputs[0].shape == Shape{1} && inputs[0].dtype == DType::f64),
        "a scale {} {}; f64 [1] is expected", dtype_name(inputs[0].dtype), inputs[0].shape.text());
    for (size_t i = 0; i < count_; ++i) {
      const Spec& source = inputs[first_source() + i];
      const Spec& target = inputs[first_source() + count_ + i];
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
    std::iota(targets.begin(), targets.end(), static_cast<int>(first_source() + count_));
    return targets;
  }
  void run(const Execution& execution) const override {
    const bool on_host = execution.stream == nullptr;
    if (scaled_ && on_host && std::isnan(*execution.inputs[0].data<double>())) return;
    for (size_t i = 0; i < count_; ++i) {
      const Tensor& source = execution.inputs[first_source() + i];
      const Tensor& target = execution.inputs[first_source() + count_ + i];
      if (on_host) {
        target.copy_from(source);
      } else if (!scaled_) {
        execution.stream->copy(target.address(), source.address(), source.bytes());
      } else {
        for_vendor(*execution.stream, [&](auto vendor) {
          copy_if_finite_device<decltype(vendor)>(execution.inputs[0].pointer<double>(),
                                                  source.elements(), source.pointer<float>(),
                                                  target.pointer<float>(), *execution.stream);
        });
      }
    }
  }

 private:
  size_t first_source() const { return scaled_ ? 1 : 0; }

  size_t count_;
  bool scaled_;
};

}  // namespace

void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale) {
  std::vector<Value> inputs;
  if (scale) inputs.push_back(*scale);
  inputs.insert(inputs.end(), sources.begin(), sources.end());
  inputs.insert(inputs.end(), targets.begin(), targets.end());
  builder.apply(std::make_shared<CopyKept>(sources.size(), scale.has_value()), std::move(inputs));
}

}  // namespace tessera
