#include "ops/cca/depthwise.h"

#include "ops/cca/depthwise_kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

// The depthwise convolution (depthwise.h) and its gradient. The plain kernels, which define both,
// come first. Then come the operations, the gradient's before DepthwiseTaps, which creates it.

/// Defines the depthwise convolution:
///   taps[t, c, 0] = y[t - 1, c], taps[t, c, 1] = y[t, c],
///   y[t, c] = weight[c, 0] * x[t - 1, c] + weight[c, 1] * x[t, c] + bias[c],
/// where x is 0 and y is the bias before the document's start.
template <typename T>
void depthwise_plain(const DepthwiseForward<T>& depthwise, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, depthwise.tokens, 1, [&](int64_t token) {
    const int earlier_count = depthwise.earlier_count(token);
    for (int64_t c = 0; c < depthwise.channels; ++c) {
      const Wide* weight = depthwise.weight + 2 * c;
      const auto x = [&](int back) {
        return back <= earlier_count ? static_cast<Wide>(depthwise.row(token - back)[c]) : Wide{0};
      };
      const auto y = [&](int back) {
        return weight[0] * x(back + 1) + weight[1] * x(back) + depthwise.bias[c];
      };
      T* taps = depthwise.taps + 2 * (token * depthwise.channels + c);
      taps[0] = static_cast<T>(earlier_count > 0 ? y(1) : depthwise.bias[c]);
      taps[1] = static_cast<T>(y(0));
    }
  });
}

/// Defines the gradients of the convolution, channel by channel. Terms of token t + 1 are 0 if that
/// token does not follow t in the document.
///   y_gradient[t, c] = taps_gradient[t, c, 1] + taps_gradient[t + 1, c, 0]
///   x_gradient[t, c] = weight[c, 1] * y_gradient[t, c] + weight[c, 0] * y_gradient[t + 1, c]
///   weight_gradient[c, 0] = sum_t y_gradient[t + 1, c] * x[t, c]
///   weight_gradient[c, 1] = sum_t y_gradient[t, c] * x[t, c]
///   bias_gradient[c] = sum_t (taps_gradient[t, c, 0] + taps_gradient[t, c, 1])
template <typename T>
void depthwise_gradient_plain(const DepthwiseBackward<T>& depthwise, int threads) {
  using Wide = Compute<T>;
  parallel_each(threads, depthwise.channels, 1, [&](int64_t c) {
    const auto tap_gradient = [&](int64_t token, int tap) {
      return static_cast<Wide>(depthwise.taps_gradient[2 * (token * depthwise.channels + c) + tap]);
    };
    const auto y_gradient = [&](int64_t token) {
      return tap_gradient(token, 1) +
             (depthwise.is_followed(token) ? tap_gradient(token + 1, 0) : Wide{0});
    };
    const Wide* weight = depthwise.weight + 2 * c;
    Wide earlier_weight_gradient = 0, current_weight_gradient = 0, bias_gradient = 0;
    for (int64_t token = 0; token < depthwise.tokens; ++token) {
      const int64_t offset = token * depthwise.channels + c;
      const auto x = static_cast<Wide>(depthwise.x[offset]);
      const Wide next_y_gradient = depthwise.is_followed(token) ? y_gradient(token + 1) : Wide{0};
      depthwise.x_gradient[offset] =
          static_cast<T>(weight[1] * y_gradient(token) + weight[0] * next_y_gradient);
      earlier_weight_gradient += next_y_gradient * x;
      current_weight_gradient += y_gradient(token) * x;
      bias_gradient += tap_gradient(token, 0) + tap_gradient(token, 1);
    }
    depthwise.weight_gradient[2 * c] = earlier_weight_gradient;
    depthwise.weight_gradient[2 * c + 1] = current_weight_gradient;
    depthwise.bias_gradient[c] = bias_gradient;
  });
}

/// Checks x [tokens, channels] and a weight [channels, 2].
void expect_channels(const Operation& operation, const Spec& x, const Spec& weight) {
  TESSERA_EXPECT(operation, x.shape.rank() == 2 && is_floating(x.dtype),
                 "x is {}; [tokens, channels] is expected", text_of(x));
  const DType wide = accumulation_dtype(x.dtype);
  TESSERA_EXPECT(operation, is_like(weight, {{x.shape[1], 2}, wide}),
                 "a weight of {}; it must be {} [{}, 2]", text_of(weight), dtype_name(wide),
                 x.shape[1]);
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
    const Spec &x = inputs[0], &weight = inputs[1];
    expect_channels(*this, x, weight);
    sequences_.expect(*this, inputs, x.shape[0]);
    TESSERA_EXPECT(*this, is_like(inputs[2], {taps_shape(x.shape), x.dtype}),
                   "a gradient {} for x {}", text_of(inputs[2]), text_of(x));
    return {{x.shape, x.dtype}, {weight.shape, weight.dtype}, {{x.shape[1]}, weight.dtype}};
  }

  /// Returns the bytes of the parts of the sums for the weight and the bias (DepthwiseBackward).
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device == Device::cpu && use_plain(target, inputs[0].dtype)) return 0;
    const Shape& x = inputs[0].shape;
    return token_parts(target, x[0]) * 3 * x[1] * static_cast<int64_t>(sizeof(float));
  }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    const int64_t parts = token_parts(execution.runtime.target(), execution.inputs[0].shape()[0]);
    run_kernel(
        execution, execution.inputs[0].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor>(Vendor, const auto& depthwise) {
          depthwise_gradient_device<Vendor>(depthwise, parts, *execution.stream);
        },
        [&](const auto& depthwise) { depthwise_gradient_plain(depthwise, threads); },
        [&](const auto& depthwise) { depthwise_gradient_fast(depthwise, parts, threads); });
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
/// given, or last rows [2, channels] and position if a sequence is continued. output: [tokens, 2 ·
/// channels].
class DepthwiseTaps final : public Operation {
 public:
  explicit DepthwiseTaps(const SequenceInputs& sequences) : sequences_(sequences) {}
  std::string_view name() const override {
    return sequences_.is_continued() ? "cached_depthwise_taps" : "depthwise_taps";
  }

  std::string labels(std::span<const Spec>) const override {
    const std::string tokens = sequences_.token_label();
    const std::string state = sequences_.is_continued() ? ", += w c" : "";
    const std::string result = sequences_.is_continued() ? "s (c k)" : "(b s) (c k)";
    return tokens + " c, c k!, c" + sequences_.labels() + " -> " + result + state;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = 3 + size_t{sequences_.is_continued()} + sequences_.count();
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs; {} are expected", inputs.size(),
                   expected);
    const Spec& x = inputs[0];
    expect_channels(*this, x, inputs[1]);
    sequences_.expect(*this, inputs, x.shape[0]);
    TESSERA_EXPECT(*this, is_like(inputs[2], {{x.shape[1]}, inputs[1].dtype}),
                   "a bias of {} for a weight of {}", text_of(inputs[2]), text_of(inputs[1]));
    if (sequences_.is_continued()) {
      TESSERA_EXPECT(*this, is_like(inputs[3], {{2, x.shape[1]}, x.dtype}), "last rows {} for x {}",
                     text_of(inputs[3]), text_of(x));
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
    const int threads = execution.runtime.threads();
    run_kernel(
        execution, execution.inputs[0].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor>(Vendor, const auto& depthwise) {
          depthwise_device<Vendor>(depthwise, *execution.stream);
        },
        [&](const auto& depthwise) { depthwise_plain(depthwise, threads); },
        [&](const auto& depthwise) { depthwise_fast(depthwise, threads); });
    if (sequences_.is_continued()) {
      keep_last_rows(execution, execution.inputs[0], execution.inputs[3]);
    }
  }

 private:
  template <typename T>
  DepthwiseForward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    return {.order = sequences_.order(inputs),
            .tokens = inputs[0].shape()[0],
            .channels = inputs[0].shape()[1],
            .x = inputs[0].pointer<T>(),
            .earlier_rows = sequences_.is_continued() ? inputs[3].pointer<T>() : nullptr,
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
