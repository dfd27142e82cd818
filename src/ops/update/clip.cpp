#include "ops/update/clip.h"

#include <cmath>
#include <limits>

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// inputs: the sum of squares, the limit, the losses; outputs: the norm and the factor.
class Clip final : public Operation {
 public:
  std::string_view name() const override { return "clip_gradients"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return repeated("u!", inputs.size()) + " -> u, u";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2, "{} inputs", inputs.size());
    for (const Spec& input : inputs) {
      TESSERA_EXPECT(*this, is_like(input, {{1}, DType::f64}),
                     "an input is {}; f64 [1] is expected", text_of(input));
    }
    return {inputs[0], inputs[0]};
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      ClipInputs inputs{.squares = execution.inputs[0].pointer<double>(),
                        .limit = execution.inputs[1].pointer<double>()};
      for (const Tensor& loss : execution.inputs.subspan(2)) {
        TESSERA_CHECK(inputs.count < ClipInputs::kMostLosses, "more than {} losses on a device",
                      ClipInputs::kMostLosses);
        inputs.losses[static_cast<size_t>(inputs.count++)] = loss.pointer<double>();
      }
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        clip_device<Vendor>(inputs, execution.outputs[0].pointer<double>(),
                            execution.outputs[1].pointer<double>(), *execution.stream);
      });
    }
    // norm = sqrt(squares); scale = limit / norm if norm > limit > 0, else 1; NaN if not finite
    const auto value = [&](size_t input) { return *execution.inputs[input].data<double>(); };
    const double norm = std::sqrt(value(0));
    const double limit = value(1);
    bool finite = std::isfinite(norm);
    for (size_t i = 2; i < execution.inputs.size(); ++i) finite = finite && std::isfinite(value(i));
    double scale = limit > 0 && norm > limit ? limit / norm : 1.0;
    if (!finite) scale = std::numeric_limits<double>::quiet_NaN();
    *execution.outputs[0].data<double>() = norm;
    *execution.outputs[1].data<double>() = scale;
  }
};

}  // namespace

Clipped clip_gradients(Builder& builder, Value squares, Value limit,
                       std::span<const Value> losses) {
  std::vector<Value> inputs{squares, limit};
  inputs.insert(inputs.end(), losses.begin(), losses.end());
  const std::vector<Value> outputs = builder.apply(std::make_shared<Clip>(), std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
