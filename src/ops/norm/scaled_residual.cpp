#include "ops/norm/scaled_residual.h"

#include <algorithm>
#include <cmath>

#include "ops/norm/norm_kernels.h"
#include "ops/norm/norm_operands.h"
#include "ops/norm/scaled_residual_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// Residual scaling, fused with the norm that follows, and its gradient (scaled_residual.h). The
// plain kernels, which define both, come first. The gradient's operation comes before the norm's,
// whose gradient() creates it. The residual stream, its scale and its bias are inputs only if there
// is a stream, so the inputs after them have no fixed index.

/// Scales a row. The second term is added only if there is a stream.
///   sum[i] = (x[i] + x_scaling.bias[i]) * x_scaling.scale[i]
///          + (stream[i] + stream_scaling.bias[i]) * stream_scaling.scale[i]
template <typename T>
void scale_row_plain(const ScaledForward<T>& scaled, int64_t start) {
  using Wide = Compute<T>;
  for (int64_t i = 0; i < scaled.width; ++i) {
    Wide sum = (static_cast<Wide>(scaled.x[start + i]) + scaled.x_scaling.bias[i]) *
               scaled.x_scaling.scale[i];
    if (scaled.stream != nullptr) {
      sum += (scaled.stream[start + i] + scaled.stream_scaling.bias[i]) *
             scaled.stream_scaling.scale[i];
    }
    scaled.sum[start + i] = sum;
  }
}

/// Writes output[i] = sum[i] * weight[i] / sqrt(mean_i(sum[i]^2) + epsilon). It is not inlined, so
/// a kept sum is normalised by the same code, which gives the same bits.
template <typename T>
[[gnu::noinline]] void normalise_sum_plain(const ScaledForward<T>& scaled, int64_t row) {
  using Wide = Compute<T>;
  const int64_t start = row * scaled.width;
  const Wide* sum = scaled.sum + start;
  Wide squares = 0;
  for (int64_t i = 0; i < scaled.width; ++i) squares += sum[i] * sum[i];
  const Wide mean = squares / static_cast<Wide>(scaled.width);
  const Wide inverse = 1 / std::sqrt(mean + static_cast<Wide>(scaled.epsilon));
  scaled.inverse[row] = inverse;
  for (int64_t i = 0; i < scaled.width; ++i) {
    scaled.output[start + i] = static_cast<T>(sum[i] * inverse * scaled.weight[i]);
  }
}

/// Defines residual scaling and its norm, row by row.
template <typename T>
void scaled_residual_plain(const ScaledForward<T>& scaled, int threads) {
  parallel_each(threads, scaled.rows, 1, [&](int64_t row) {
    if (scaled.x != nullptr) scale_row_plain(scaled, row * scaled.width);
    normalise_sum_plain(scaled, row);
  });
}

/// Returns mean_i(n[i] * g[i]) over a row, with n = sum * inverse and g = output_gradient * weight.
template <typename T>
Compute<T> scaled_product_mean(const ScaledBackward<T>& scaled, int64_t row) {
  using Wide = Compute<T>;
  Wide total = 0;
  for (int64_t i = 0; i < scaled.width; ++i) {
    const int64_t offset = row * scaled.width + i;
    total += static_cast<Wide>(scaled.output_gradient[offset]) * scaled.weight[i] *
             scaled.sum[offset] * scaled.inverse[row];
  }
  return total / static_cast<Wide>(scaled.width);
}

/// Returns the gradient of an element of the sum:
///   d = inverse * (g - n * mean(n * g)) + sum_gradient
template <typename T>
Compute<T> scaled_sum_gradient(const ScaledBackward<T>& scaled, int64_t row, int64_t i,
                               Compute<T> product_mean) {
  using Wide = Compute<T>;
  const int64_t offset = row * scaled.width + i;
  const Wide gradient = static_cast<Wide>(scaled.output_gradient[offset]) * scaled.weight[i];
  const Wide normalised = scaled.sum[offset] * scaled.inverse[row];
  const Wide through = scaled.inverse[row] * (gradient - normalised * product_mean);
  return scaled.sum_gradient != nullptr ? through + scaled.sum_gradient[offset] : through;
}

/// Computes the gradients of the vectors. Each column is summed over the rows in order, in a single
/// part. It must run before the gradients of x and the stream are written, because these may
/// overwrite its inputs.
template <typename T>
void scaled_vector_gradients_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  const int64_t width = scaled.width;
  Wide* const sums = scaled.parts;
  parallel_ranges(threads, width, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t s = 0; s < kScaledSums; ++s) {
      std::fill(sums + s * width + begin, sums + s * width + end, Wide{0});
    }
    for (int64_t row = 0; row < scaled.rows; ++row) {
      const Wide product_mean = scaled_product_mean(scaled, row);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t offset = row * width + i;
        const Wide gradient = scaled_sum_gradient(scaled, row, i, product_mean);
        sums[i] += gradient;
        sums[width + i] += gradient * static_cast<Wide>(scaled.x[offset]);
        if (scaled.stream != nullptr) sums[2 * width + i] += gradient * scaled.stream[offset];
        sums[3 * width + i] += static_cast<Wide>(scaled.output_gradient[offset]) *
                               scaled.sum[offset] * scaled.inverse[row];
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const Wide column[] = {sums[i], sums[width + i], sums[2 * width + i], sums[3 * width + i]};
      put_vector_gradients(scaled, i, column);
    }
  });
}

/// Defines the gradients:
///   x_gradient = d * x_scaling.scale, stream_gradient = d * stream_scaling.scale
template <typename T>
void scaled_residual_gradient_plain(const ScaledBackward<T>& scaled, int threads) {
  using Wide = Compute<T>;
  scaled_vector_gradients_plain(scaled, threads);
  parallel_each(threads, scaled.rows, 1, [&](int64_t row) {
    const Wide product_mean = scaled_product_mean(scaled, row);
    for (int64_t i = 0; i < scaled.width; ++i) {
      const int64_t offset = row * scaled.width + i;
      const Wide gradient = scaled_sum_gradient(scaled, row, i, product_mean);
      scaled.x_gradient[offset] = static_cast<T>(gradient * scaled.x_scaling.scale[i]);
      if (scaled.stream != nullptr) {
        scaled.stream_gradient[offset] = gradient * scaled.stream_scaling.scale[i];
      }
    }
  });
}

bool is_vector_of(const Spec& vector, const Spec& x) {
  return is_like(vector, {{x.shape[-1]}, accumulation_dtype(x.dtype)});
}

/// Returns a scale and a bias, which are the inputs scale_input and scale_input + 1.
template <typename Wide>
ScaleAndBias<Wide> scale_at(std::span<const Tensor> inputs, size_t scale_input) {
  return {inputs[scale_input].pointer<Wide>(), inputs[scale_input + 1].pointer<Wide>()};
}

/// inputs: the sum, the inverse deviations, the output's gradient, x, its scale and bias; the
/// stream, its scale and bias if there is one; the weight; the sum's gradient if it has one.
/// outputs: the gradients of the inputs from x to the weight.
class ScaledResidualGradient final : public Operation {
 public:
  ScaledResidualGradient(bool has_stream, bool has_sum_gradient)
      : has_stream_(has_stream), has_sum_gradient_(has_sum_gradient) {}
  std::string_view name() const override { return "scaled_residual_norm_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const NormLabels names(inputs[0].shape.rank(), false);
    const std::string scaled = fmt::format(", {}, channel!, channel!", names.x);
    const std::string gradients = fmt::format("{}, channel, channel", names.x);
    return fmt::format("{0}, {1}, ~{0}{2}{3}, channel!{4} -> {5}{6}, channel", names.x,
                       names.statistic, scaled, has_stream_ ? scaled : "",
                       has_sum_gradient_ ? " + ~" + names.x : "", gradients,
                       has_stream_ ? ", " + gradients : "");
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = weight_input() + 1 + size_t{has_sum_gradient_};
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs are needed", expected);
    TESSERA_EXPECT(*this, is_like(inputs[2], inputs[3]), "a gradient {} of an output {}",
                   text_of(inputs[2]), text_of(inputs[3]));
    if (has_sum_gradient_) {
      TESSERA_EXPECT(*this, is_like(inputs.back(), inputs[0]), "a gradient {} of a stream {}",
                     text_of(inputs.back()), text_of(inputs[0]));
    }
    std::vector<Spec> outputs;
    for (size_t i = 3; i <= weight_input(); ++i) {
      outputs.push_back({inputs[i].shape, inputs[i].dtype});
    }
    return outputs;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return parts(target, inputs[0]) * kScaledSums * inputs[0].shape[-1] *
           dtype_size(inputs[0].dtype);
  }

  /// Lets x's gradient overwrite the output's, and the stream's gradient overwrite the sum's.
  int in_place_input(int output) const override {
    if (output == 0) return 2;
    return has_stream_ && has_sum_gradient_ && output == 3 ? static_cast<int>(weight_input()) + 1
                                                           : -1;
  }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    run_kernel(
        execution, execution.inputs[3].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor>(Vendor, const auto& scaled) {
          scaled_residual_gradient_device<Vendor>(scaled, *execution.stream);
        },
        [&](const auto& scaled) { scaled_residual_gradient_plain(scaled, threads); },
        [&](const auto& scaled) { scaled_residual_gradient_fast(scaled, threads); });
  }

 private:
  size_t weight_input() const { return has_stream_ ? 9 : 6; }

  /// Returns the number of parts in which the rows are summed. On a device a row and its sums take
  /// twice the registers of a norm's row.
  static int64_t parts(const Target& target, const Spec& sum) {
    if (target.device == Device::cpu && use_plain(target, sum.dtype)) return 1;
    return norm_parts(target, sum.shape.rows(), 2 * sum.shape[-1] * dtype_size(sum.dtype));
  }

  template <typename T>
  ScaledBackward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    const std::span<const Tensor> outputs = execution.outputs;
    ScaledBackward<T> scaled{};
    scaled.rows = inputs[0].shape().rows();
    scaled.width = inputs[0].shape()[-1];
    scaled.sum = inputs[0].pointer<Wide>();
    scaled.inverse = inputs[1].pointer<Wide>();
    scaled.output_gradient = inputs[2].pointer<T>();
    scaled.x = inputs[3].pointer<T>();
    scaled.x_scaling = scale_at<Wide>(inputs, 4);
    scaled.x_gradient = outputs[0].pointer<T>();
    scaled.vector_gradients[0] = outputs[1].pointer<Wide>();
    scaled.vector_gradients[1] = outputs[2].pointer<Wide>();
    if (has_stream_) {
      scaled.stream = inputs[6].pointer<Wide>();
      scaled.stream_scaling = scale_at<Wide>(inputs, 7);
      scaled.stream_gradient = outputs[3].pointer<Wide>();
      scaled.vector_gradients[2] = outputs[4].pointer<Wide>();
      scaled.vector_gradients[3] = outputs[5].pointer<Wide>();
    }
    scaled.weight = inputs[weight_input()].pointer<Wide>();
    scaled.vector_gradients[4] = outputs.back().pointer<Wide>();
    if (has_sum_gradient_) scaled.sum_gradient = inputs.back().pointer<Wide>();
    scaled.parts = reinterpret_cast<Wide*>(execution.workspace.data());
    scaled.part_count = parts(execution.runtime.target(), spec_of(inputs[0]));
    return scaled;
  }

  bool has_stream_;
  bool has_sum_gradient_;
};

/// inputs: x, its scale and bias; the stream, its scale and bias if there is one; the weight.
/// outputs: the output, the sum, the inverse deviations [rows, 1]. For a kept sum, the inputs are
/// the sum and the weight, and the sum is no output.
class ScaledResidualNorm final : public Operation {
 public:
  /// The inputs of the sum. embedding: x alone. sublayer: x and a stream. kept_sum: the sum itself.
  enum class Source { embedding, sublayer, kept_sum };

  ScaledResidualNorm(Source source, double epsilon, DType output)
      : source_(source), epsilon_(epsilon), output_(output) {}
  std::string_view name() const override { return "scaled_residual_norm"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const NormLabels names(inputs[0].shape.rank(), false);
    const std::string scaled = fmt::format("{}, channel!, channel!, ", names.x);
    const std::string source_labels = source_ == Source::kept_sum    ? names.x + ", "
                                      : source_ == Source::embedding ? scaled
                                                                     : scaled + scaled;
    const std::string sum = source_ == Source::kept_sum ? "" : ", " + names.x;
    return fmt::format("{0}channel! -> {1}{2}, {3}", source_labels, names.x, sum, names.statistic);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == weight_input() + 1 && is_floating(inputs[0].dtype),
                   "{} floating inputs are needed", weight_input() + 1);
    const Spec& x = inputs[0];
    TESSERA_EXPECT(*this, x.shape.rank() == 2, "x of {}; it must be [tokens, row]", x.shape.text());
    TESSERA_EXPECT(*this, epsilon_ > 0, "an epsilon of {}; it must be positive", epsilon_);
    const Spec sum{x.shape, accumulation_dtype(x.dtype)};
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (source_ == Source::sublayer && i == 3) {
        TESSERA_EXPECT(*this, is_like(inputs[i], sum), "a stream {} for x {}", text_of(inputs[i]),
                       text_of(x));
        continue;
      }
      TESSERA_EXPECT(*this, is_vector_of(inputs[i], x), "input {} is {}; it must be {} [{}]", i,
                     text_of(inputs[i]), dtype_name(sum.dtype), x.shape[-1]);
    }
    const Spec inverse{{x.shape.rows(), 1}, sum.dtype};
    if (source_ == Source::kept_sum) return {{x.shape, output_}, inverse};
    return {{x.shape, output_}, sum, inverse};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    TESSERA_EXPECT(*this, bool(output_gradients[0]), "its output has no gradient");
    const bool has_sum_gradient = bool(output_gradients[1]);
    std::vector<Value> inputs{self.outputs[1], self.outputs[2], output_gradients[0]};
    inputs.insert(inputs.end(), self.inputs.begin(), self.inputs.end());
    if (has_sum_gradient) inputs.push_back(output_gradients[1]);
    return builder.apply(
        std::make_shared<ScaledResidualGradient>(source_ == Source::sublayer, has_sum_gradient),
        std::move(inputs));
  }

  /// Returns the weight alone if the sum was kept, because then the kept sum is normalised.
  std::vector<Value> recompute_inputs(const Node& self,
                                      std::span<const Value> kept) const override {
    std::vector<Value> needed = self.inputs;
    if (kept[1]) std::fill_n(needed.begin(), weight_input(), Value{});
    return needed;
  }
  std::vector<Value> recompute(Builder& builder, const Node& self, std::span<const Value> inputs,
                               std::span<const Value> kept) const override {
    if (!kept[1]) return builder.apply(self.operation, {inputs.begin(), inputs.end()});
    const std::vector<Value> renormalised =
        builder.apply(std::make_shared<ScaledResidualNorm>(Source::kept_sum, epsilon_, output_),
                      {kept[1], inputs.back()});
    return {renormalised[0], kept[1], renormalised[1]};
  }

  /// Lets the output overwrite x, and the new stream the previous one.
  int in_place_input(int output) const override {
    if (output == 0 && source_ != Source::kept_sum) return 0;
    return output == 1 && source_ == Source::sublayer ? 3 : -1;
  }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    run_kernel(
        execution, output_, [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor>(Vendor, const auto& scaled) {
          scaled_residual_device<Vendor>(scaled, *execution.stream);
        },
        [&](const auto& scaled) { scaled_residual_plain(scaled, threads); },
        [&](const auto& scaled) { scaled_residual_fast(scaled, threads); });
  }

 private:
  size_t weight_input() const {
    return source_ == Source::kept_sum ? 1 : source_ == Source::embedding ? 3 : 6;
  }

  template <typename T>
  ScaledForward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    ScaledForward<T> scaled{};
    scaled.rows = inputs[0].shape().rows();
    scaled.width = inputs[0].shape()[-1];
    scaled.epsilon = epsilon_;
    scaled.weight = inputs[weight_input()].pointer<Wide>();
    scaled.output = execution.outputs[0].pointer<T>();
    scaled.inverse = execution.outputs.back().pointer<Wide>();
    if (source_ == Source::kept_sum) {
      scaled.sum = inputs[0].pointer<Wide>();
      return scaled;
    }
    scaled.x = inputs[0].pointer<T>();
    scaled.x_scaling = scale_at<Wide>(inputs, 1);
    scaled.sum = execution.outputs[1].pointer<Wide>();
    if (source_ == Source::sublayer) {
      scaled.stream = inputs[3].pointer<Wide>();
      scaled.stream_scaling = scale_at<Wide>(inputs, 4);
    }
    return scaled;
  }

  Source source_;
  double epsilon_;
  DType output_;
};

}  // namespace

ScaledResidual scaled_residual_norm(Builder& builder, Value x, const ResidualScale& x_scaling,
                                    std::optional<Value> stream,
                                    const std::optional<ResidualScale>& stream_scaling,
                                    Value weight, const NormOptions& options) {
  TESSERA_CHECK(options.kind == NormKind::rms && options.group == 0,
                "residual scaling is fused with the RMSNorm of whole rows alone");
  TESSERA_CHECK(stream.has_value() == stream_scaling.has_value(),
                "a stream and its scale, or neither");
  std::vector<Value> inputs{x, x_scaling.scale, x_scaling.bias};
  if (stream) inputs.insert(inputs.end(), {*stream, stream_scaling->scale, stream_scaling->bias});
  inputs.push_back(weight);
  using Source = ScaledResidualNorm::Source;
  const std::vector<Value> outputs = builder.apply(
      std::make_shared<ScaledResidualNorm>(stream ? Source::sublayer : Source::embedding,
                                           options.epsilon, builder.spec(x).dtype),
      std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
