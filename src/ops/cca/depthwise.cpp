#include "ops/cca/depthwise.h"

#include "ops/cca/depthwise_kernels.h"
#include "ops/cca/depthwise_plain.h"
#include "ops/cca/last_rows.h"
#include "ops/cca/weight_parts.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Checks x [tokens, channels] and a weight [channels, 2].
void expect_channels(const Operation& operation, const Spec& x, const Spec& weight) {
  TESSERA_EXPECT(operation, x.shape.rank() == 2 && is_floating(x.dtype),
                 "x is {} {}; [tokens, channels] is expected", dtype_name(x.dtype), x.shape.text());
  const DType wide = accumulation_dtype(x.dtype);
  TESSERA_EXPECT(operation, weight.shape == Shape({x.shape[1], 2}) && weight.dtype == wide,
                 "a weight of {} {}; it must be {} [{}, 2]", dtype_name(weight.dtype),
                 weight.shape.text(), dtype_name(wide), x.shape[1]);
}

Shape taps_shape(const Shape& x) { return {x[0], 2 * x[1]}; }

/// inputs: x [tokens, channels], weight [channels, 2], the taps' gradient [tokens, 2 · channels],
/// document starts if given. outputs: the gradients of x, the weight and the bias.
class DepthwiseTapsGradient final : public Operation {
 public:
  explicit DepthwiseTapsGradient(const SequenceInputs& sequences) : sequences_(sequences) {}
  std::string_view name() const override { return "depthwise_taps_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return "(b s!) c, c k!, ~(b s) (c k)" + sequences_.labels() + " -> (b s) c, c k, c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3 + sequences_.count(), "{} inputs", inputs.size());
    const Spec& x = inputs[0];
    const Spec& weight = inputs[1];
    expect_channels(*this, x, weight);
    sequences_.expect(*this, inputs, x.shape[0]);
    TESSERA_EXPECT(*this, inputs[2].shape == taps_shape(x.shape) && inputs[2].dtype == x.dtype,
                   "a gradient {} {} for x {} {}", dtype_name(inputs[2].dtype),
                   inputs[2].shape.text(), dtype_name(x.dtype), x.shape.text());
    return {{x.shape, x.dtype}, {weight.shape, weight.dtype}, {{x.shape[1]}, weight.dtype}};
  }

  /// Returns the bytes of the parts in which fast kernels sum the weights' gradients.
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device == Device::cpu && use_plain(target, inputs[0].dtype)) return 0;
    const Shape& x = inputs[0].shape;
    return token_parts(target, x[0]) * 3 * x[1] * static_cast<int64_t>(sizeof(float));
  }

  void run(const Execution& execution) const override {
    const Target& target = execution.runtime.target();
    const int64_t parts = token_parts(target, execution.inputs[0].shape()[0]);
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        depthwise_gradient_device<decltype(vendor)>(arguments<decltype(type)>(execution), parts,
                                                    *execution.stream);
      });
      return;
    }
    dispatch_floating(execution.inputs[0].dtype(), [&](auto type) {
      using T = decltype(type);
      const DepthwiseBackward<T> depthwise = arguments<T>(execution);
      if constexpr (!std::is_same_v<T, double>) {
        if (!use_plain(target, dtype_of<T>)) {
          return depthwise_gradient_fast(depthwise, parts, target.threads);
        }
      }
      depthwise_gradient_plain(depthwise, target.threads);
    });
  }

 private:
  template <typename T>
  DepthwiseBackward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const Tensor& x = execution.inputs[0];
    return {.order = sequences_.order(execution.inputs),
            .tokens = x.shape()[0],
            .channels = x.shape()[1],
            .x = x.pointer<T>(),
            .weight = execution.inputs[1].pointer<Wide>(),
            .taps_gradient = execution.inputs[2].pointer<T>(),
            .x_gradient = execution.outputs[0].pointer<T>(),
            .weight_gradient = execution.outputs[1].pointer<Wide>(),
            .bias_gradient = execution.outputs[2].pointer<Wide>(),
            .parts = reinterpret_cast<Wide*>(execution.workspace.data())};
  }

  SequenceInputs sequences_;
};

/// inputs: x [tokens, channels], weight [channels, 2], bias [channels]; then document starts if
/// given, or, if a sequence is continued, its last rows [2, channels] and the position. output:
/// [tokens, 2 · channels].
class DepthwiseTaps final : public Operation {
 public:
  explicit DepthwiseTaps(const SequenceInputs& sequences) : sequences_(sequences) {}
  std::string_view name() const override {
    return sequences_.is_continued() ? "cached_depthwise_taps" : "depthwise_taps";
  }

  std::string labels(std::span<const Spec>) const override {
    const std::string tokens = sequences_.tokens();
    const std::string kept = sequences_.is_continued() ? ", += w c" : "";
    const std::string result = sequences_.is_continued() ? "s (c k)" : "(b s) (c k)";
    return tokens + " c, c k!, c" + sequences_.labels() + " -> " + result + kept;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = 3 + size_t{sequences_.is_continued()} + sequences_.count();
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs; {} are expected", inputs.size(),
                   expected);
    const Spec& x = inputs[0];
    expect_channels(*this, x, inputs[1]);
    sequences_.expect(*this, inputs, x.shape[0]);
    TESSERA_EXPECT(*this,
                   inputs[2].shape == Shape({x.shape[1]}) && inputs[2].dtype == inputs[1].dtype,
                   "a bias of {} {} for a weight of {} {}", dtype_name(inputs[2].dtype),
                   inputs[2].shape.text(), dtype_name(inputs[1].dtype), inputs[1].shape.text());
    if (sequences_.is_continued()) {
      TESSERA_EXPECT(*this, inputs[3].shape == Shape({2, x.shape[1]}) && inputs[3].dtype == x.dtype,
                     "last rows {} {} for x {} {}", dtype_name(inputs[3].dtype),
                     inputs[3].shape.text(), dtype_name(x.dtype), x.shape.text());
    }
    return {{taps_shape(x.shape), x.dtype}};
  }

  std::vector<int> updated_inputs() const override {
    return sequences_.is_continued() ? std::vector<int>{3} : std::vector<int>{};
  }
  bool cheap_to_repeat() const override { return !sequences_.is_continued(); }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (sequences_.is_continued()) return result;
    std::vector<Value> inputs{
        self.inputs[0], self.inputs[1],
        cast(builder, output_gradients[0], builder.spec(self.inputs[0]).dtype)};
    inputs.insert(inputs.end(), self.inputs.begin() + 3, self.inputs.end());
    const std::vector<Value> gradients =
        builder.apply(std::make_shared<DepthwiseTapsGradient>(sequences_), std::move(inputs));
    std::copy(gradients.begin(), gradients.end(), result.begin());
    return result;
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        depthwise_device<decltype(vendor)>(arguments<decltype(type)>(execution), *execution.stream);
      });
    } else {
      dispatch_floating(execution.inputs[0].dtype(), [&](auto type) {
        run_on_processor(execution.runtime, arguments<decltype(type)>(execution));
      });
    }
    if (sequences_.is_continued()) {
      keep_last_rows(execution, execution.inputs[0], execution.inputs[3]);
    }
  }

 private:
  template <typename T>
  static void run_on_processor(Runtime& runtime, const DepthwiseForward<T>& depthwise) {
    if constexpr (!std::is_same_v<T, double>) {
      if (!use_plain(runtime.target(), dtype_of<T>)) {
        return depthwise_fast(depthwise, runtime.threads());
      }
    }
    depthwise_plain(depthwise, runtime.threads());
  }

  template <typename T>
  DepthwiseForward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    return {.order = sequences_.order(inputs),
            .tokens = inputs[0].shape()[0],
            .channels = inputs[0].shape()[1],
            .x = inputs[0].pointer<T>(),
            .before = sequences_.is_continued() ? inputs[3].pointer<T>() : nullptr,
            .weight = inputs[1].pointer<Wide>(),
            .bias = inputs[2].pointer<Wide>(),
            .taps = execution.outputs[0].pointer<T>()};
  }

  SequenceInputs sequences_;
};

}  // namespace

Value depthwise_taps(Builder& builder, Value x, Value weight, Value bias,
                     const SequenceOptions& options) {
  return builder.apply_single(std::make_shared<DepthwiseTaps>(SequenceInputs(options)),
                              with_documents({x, weight, bias}, options));
}

Value cached_depthwise_taps(Builder& builder, Value x, Value weight, Value bias, Value last_rows,
                            Value position) {
  return builder.apply_single(std::make_shared<DepthwiseTaps>(SequenceInputs::continued()),
                              {x, weight, bias, last_rows, position});
}

}  // namespace tessera
