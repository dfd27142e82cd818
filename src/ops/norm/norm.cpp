#include "ops/norm/norm.h"

#include "ops/norm/norm_kernels.h"
#include "ops/norm/norm_operands.h"
#include "ops/norm/norm_plain.h"
#include "ops/rotary/rotate.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The norm, with the optional addition of a residual before it and the optional rotation after it.
// Its gradient is another operation, which comes first. If the backward pass computes the norm
// again and the sum was kept, it normalises the kept sum.

/// Returns the rotation of a norm or of its gradient; none if `head_dim` is 0. It applies to the
/// rows of the first input [tokens, heads · head_dim]. The last is the table [tokens, channels].
template <typename T>
NormRotation<T> norm_rotation(const Execution& execution, int64_t head_dim) {
  if (head_dim == 0) return {};
  const Shape& x = execution.inputs.front().shape();
  const Tensor& table = execution.inputs.back();
  return {.table = table.pointer<Compute<T>>(),
          .tokens = x[0],
          .heads = x[1] / head_dim,
          .head_dim = head_dim,
          .channels = table.shape()[1]};
}

/// inputs: x or the sum, whichever was normalised, [..., row]; inverse deviation [rows, groups];
/// output's gradient [..., row]. The next inputs are those that exist of: weight [group], mean
/// [rows, groups], the sum's gradient [..., row] and the table [tokens, channels] that rotated the
/// output. outputs: x's gradient, and the weight's gradient if weighted.
class NormGradient final : public Operation {
 public:
  NormGradient(bool weighted, bool centred, bool has_sum_gradient, bool by_heads,
               int64_t rotated_head_dim)
      : weighted_(weighted),
        centred_(centred),
        has_sum_gradient_(has_sum_gradient),
        by_heads_(by_heads),
        rotated_head_dim_(rotated_head_dim) {}
  std::string_view name() const override {
    if (rotated()) return centred_ ? "layer_norm_rotary_gradient" : "rms_norm_rotary_gradient";
    return centred_ ? "layer_norm_gradient" : "rms_norm_gradient";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    const NormLabels names(inputs[0].shape.rank(), by_heads_);
    std::string labels = fmt::format("{0}, {1}, ~{0}", names.x, names.statistic);
    if (weighted_) labels += ", channel!";
    if (centred_) labels += ", " + names.statistic;
    if (has_sum_gradient_) labels += " + ~" + names.x;
    if (rotated()) labels += ", a r!";
    labels += " -> " + names.x;
    return weighted_ ? labels + ", channel" : labels;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = sum_input() + size_t{has_sum_gradient_} + size_t{rotated()};
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs are needed", expected);
    const Spec& x = inputs[0];
    TESSERA_EXPECT(*this,
                   is_like(inputs[2], x) && (!has_sum_gradient_ || is_like(inputs[sum_input()], x)),
                   "gradients must be {}", text_of(x));
    if (!weighted_) return {x};
    const Spec& weight = inputs[3];
    return {x, {weight.shape, weight.dtype}};
  }

  /// Returns the bytes of the parts in which fast kernels sum the weight's gradient.
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (!weighted_ || use_plain(target, inputs[0].dtype)) return 0;
    const Spec& weight = inputs[3];
    const int64_t row_bytes = weight.shape.elements() * dtype_size(inputs[0].dtype);
    return norm_parts(target, inputs[1].shape.elements(), row_bytes) * weight.bytes();
  }

  int in_place_input(int output) const override { return output == 0 ? 2 : -1; }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    // Rotates the output's gradient back, into the memory of x_gradient. The kernels then read and
    // write the same memory, which they allow (NormBackward).
    const auto rotate_back = [&]<typename T>(NormBackward<T> norm) {
      if (!rotated()) return norm;
      const auto rotation = norm_rotation<T>(execution, rotated_head_dim_);
      rotate_on_processor(execution.runtime,
                          rotation.arguments(true, norm.output_gradient, norm.x_gradient));
      norm.output_gradient = norm.x_gradient;
      return norm;
    };
    run_kernel(
        execution, execution.inputs[0].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor, typename T>(Vendor, const NormBackward<T>& norm) {
          norm_gradient_device<Vendor>(
              norm, norm_rotation<T>(execution, rotated_head_dim_),
              norm_parts(execution.runtime.target(), norm.rows,
                         norm.width * dtype_size(execution.inputs[0].dtype())),
              *execution.stream);
        },
        [&](const auto& norm) { norm_gradient_plain(rotate_back(norm), threads); },
        [&](const auto& norm) { norm_gradient_fast(rotate_back(norm), threads); });
  }

 private:
  bool rotated() const { return rotated_head_dim_ > 0; }

  size_t mean_input() const { return weighted_ ? 4 : 3; }
  size_t sum_input() const { return mean_input() + size_t{centred_}; }

  template <typename T>
  NormBackward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    NormBackward<T> norm{};
    norm.rows = inputs[1].elements();
    norm.width = inputs[0].shape()[-1] / inputs[1].shape()[-1];
    norm.x = inputs[0].pointer<T>();
    norm.inverse = inputs[1].pointer<Wide>();
    norm.output_gradient = inputs[2].pointer<T>();
    norm.x_gradient = execution.outputs[0].pointer<T>();
    if (centred_) norm.mean = inputs[mean_input()].pointer<Wide>();
    if (has_sum_gradient_) norm.sum_gradient = inputs[sum_input()].pointer<T>();
    if (weighted_) {
      norm.weight = inputs[3].pointer<Wide>();
      norm.weight_gradient = execution.outputs[1].pointer<Wide>();
      norm.partial = reinterpret_cast<Wide*>(execution.workspace.data());
    }
    return norm;
  }

  bool weighted_;
  bool centred_;
  bool has_sum_gradient_;
  bool by_heads_;
  int64_t rotated_head_dim_;
};

/// The last output of a norm: what was normalised, for later use.
enum class NormSum { none, with_residual, x_alone };

/// inputs: x [..., row], weight [group] if weighted, residual [..., row] if there is one. outputs:
/// output [..., row], inverse deviation [rows, groups], mean [rows, groups] for a layer norm, and
/// sum [..., row] unless its kind is none. If the output is rotated, there is no sum, and the last
/// input is the table [tokens, channels].
class Norm final : public Operation {
 public:
  /// `rotated_head_dim` is the size of the heads that are rotated, or 0.
  Norm(const NormOptions& options, bool weighted, NormSum sum, int64_t rotated_head_dim = 0)
      : options_(options),
        weighted_(weighted),
        has_residual_(sum == NormSum::with_residual),
        has_sum_(sum != NormSum::none),
        rotated_head_dim_(rotated_head_dim) {}
  std::string_view name() const override {
    const bool rms = options_.kind == NormKind::rms;
    if (rotated()) return rms ? "rms_norm_rotary" : "layer_norm_rotary";
    return rms ? "rms_norm" : "layer_norm";
  }

  /// Returns the index of the residual among the node's inputs. It is valid only with a residual.
  size_t residual_input() const { return weighted_ ? 2 : 1; }
  /// Returns the index of the sum among the node's outputs. It is valid only with a sum.
  size_t sum_output() const { return options_.kind == NormKind::layer ? 3 : 2; }

  std::string labels(std::span<const Spec> inputs) const override {
    const NormLabels names(inputs[0].shape.rank(), options_.group > 0);
    std::string labels = names.x;
    if (weighted_) labels += ", channel!";
    if (has_residual_) labels += ", " + names.x;
    if (rotated()) labels += ", a r!";
    labels += " -> " + names.x + ", " + names.statistic;
    if (options_.kind == NormKind::layer) labels += ", " + names.statistic;
    if (has_sum_) labels += ", " + names.x;
    return labels;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = 1 + size_t{weighted_} + size_t{has_residual_} + size_t{rotated()};
    TESSERA_EXPECT(*this, inputs.size() == expected && is_floating(inputs[0].dtype),
                   "{} floating inputs are needed", expected);
    const Spec& x = inputs[0];
    TESSERA_EXPECT(*this, options_.epsilon > 0, "an epsilon of {}; it must be positive",
                   options_.epsilon);
    const int64_t row = x.shape[-1];
    TESSERA_EXPECT(*this, options_.group >= 0 && row % width(x.shape) == 0,
                   "rows of {} do not divide into groups of {}", row, options_.group);
    const DType wide = accumulation_dtype(x.dtype);
    if (weighted_) {
      TESSERA_EXPECT(*this, is_like(inputs[1], {{width(x.shape)}, wide}),
                     "a weight of {}; it must be {} [{}]", text_of(inputs[1]), dtype_name(wide),
                     width(x.shape));
    }
    if (has_residual_) {
      const Spec& residual = inputs[residual_input()];
      TESSERA_EXPECT(*this, is_like(residual, x), "a residual of {} for x of {}", text_of(residual),
                     text_of(x));
    }
    if (rotated()) require_rotation(inputs);
    const Spec statistic{{x.shape.rows(), row / width(x.shape)}, wide};
    std::vector<Spec> outputs{x, statistic};
    if (options_.kind == NormKind::layer) outputs.push_back(statistic);
    if (has_sum_) outputs.push_back(x);
    return outputs;
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const Value sum_gradient = has_sum_ ? output_gradients[sum_output()] : Value{};
    std::vector<Value> gradients{sum_gradient, {}};  // of x and the weight
    if (output_gradients[0]) {
      const bool centred = options_.kind == NormKind::layer;
      std::vector<Value> inputs{has_sum_ ? self.outputs[sum_output()] : self.inputs[0],
                                self.outputs[1], output_gradients[0]};
      if (weighted_) inputs.push_back(self.inputs[1]);
      if (centred) inputs.push_back(self.outputs[2]);
      if (sum_gradient) inputs.push_back(sum_gradient);
      if (rotated()) inputs.push_back(self.inputs.back());
      gradients =
          builder.apply(std::make_shared<NormGradient>(weighted_, centred, bool(sum_gradient),
                                                       options_.group > 0, rotated_head_dim_),
                        std::move(inputs));
    }
    std::vector<Value> input_gradients{gradients[0]};
    if (weighted_) input_gradients.push_back(gradients[1]);
    if (has_residual_) input_gradients.push_back(gradients[0]);
    if (rotated()) input_gradients.emplace_back();
    return input_gradients;
  }

  /// Returns all inputs, without x and the residual if the sum was kept, which is then normalised.
  std::vector<Value> recompute_inputs(const Node& self,
                                      std::span<const Value> kept) const override {
    std::vector<Value> needed = self.inputs;
    if (has_sum_ && kept[sum_output()]) {
      needed[0] = {};
      if (has_residual_) needed[residual_input()] = {};
    }
    return needed;
  }

  std::vector<Value> recompute(Builder& builder, const Node& self, std::span<const Value> inputs,
                               std::span<const Value> kept) const override {
    if (!has_sum_ || !kept[sum_output()]) {
      return builder.apply(self.operation, {inputs.begin(), inputs.end()});
    }
    const Value sum = kept[sum_output()];
    std::vector<Value> norm_inputs{sum};
    if (weighted_) norm_inputs.push_back(inputs[1]);
    std::vector<Value> outputs = builder.apply(
        std::make_shared<Norm>(options_, weighted_, NormSum::none), std::move(norm_inputs));
    outputs.push_back(sum);
    return outputs;
  }

  /// Lets the output overwrite x, and the sum the residual, or x where there is none. Kernels read
  /// a row before they write it.
  int in_place_input(int output) const override {
    if (output == 0) return 0;
    if (!has_sum_ || static_cast<size_t>(output) != sum_output()) return -1;
    return has_residual_ ? static_cast<int>(residual_input()) : 0;
  }

  void run(const Execution& execution) const override {
    if (has_sum_ && !has_residual_) pass_on(execution);
    const int threads = execution.runtime.threads();
    const auto rotate = [&]<typename T>(const NormForward<T>& norm) {
      if (!rotated()) return;
      const auto rotation = norm_rotation<T>(execution, rotated_head_dim_);
      rotate_on_processor(execution.runtime, rotation.arguments(false, norm.output, norm.output));
    };
    run_kernel(
        execution, execution.inputs[0].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor, typename T>(Vendor, const NormForward<T>& norm) {
          norm_device<Vendor>(norm, norm_rotation<T>(execution, rotated_head_dim_),
                              *execution.stream);
        },
        [&](const auto& norm) {
          norm_plain(norm, threads);
          rotate(norm);
        },
        [&](const auto& norm) {
          norm_fast(norm, threads);
          rotate(norm);
        });
  }

 private:
  bool rotated() const { return rotated_head_dim_ > 0; }

  /// Copies x to the sum, before the output may overwrite x.
  void pass_on(const Execution& execution) const {
    const Tensor& x = execution.inputs[0];
    const Tensor& sum = execution.outputs[sum_output()];
    if (sum.address() != x.address()) copy(execution, x, sum);
  }

  void require_rotation(std::span<const Spec> inputs) const {
    const Spec& x = inputs[0];
    const Spec& table = inputs.back();
    TESSERA_EXPECT(*this, !has_sum_ && x.shape.rank() == 2 && table.shape.rank() == 2,
                   "x [tokens, heads * head_dim] without a residual and a table [tokens, channels] "
                   "are needed");
    TESSERA_EXPECT(*this, width(x.shape) % rotated_head_dim_ == 0,
                   "groups of {} do not divide into heads of {}", width(x.shape),
                   rotated_head_dim_);
    TESSERA_EXPECT(*this,
                   table.shape[0] == x.shape[0] && table.shape[1] % 2 == 0 &&
                       table.shape[1] <= rotated_head_dim_ &&
                       table.dtype == accumulation_dtype(x.dtype),
                   "a table of {} for x of {} with heads of {}", text_of(table), text_of(x),
                   rotated_head_dim_);
  }

  /// Returns the number of elements that are normalised together.
  int64_t width(const Shape& x) const { return options_.group > 0 ? options_.group : x[-1]; }

  template <typename T>
  NormForward<T> arguments(const Execution& execution) const {
    using Wide = Compute<T>;
    const Tensor& x = execution.inputs[0];
    const Tensor& inverse = execution.outputs[1];
    NormForward<T> norm{};
    norm.rows = inverse.elements();
    norm.width = width(x.shape());
    norm.epsilon = options_.epsilon;
    norm.x = x.pointer<T>();
    norm.output = execution.outputs[0].pointer<T>();
    norm.inverse = inverse.pointer<Wide>();
    if (weighted_) norm.weight = execution.inputs[1].pointer<Wide>();
    if (options_.kind == NormKind::layer) norm.mean = execution.outputs[2].pointer<Wide>();
    if (has_residual_) {
      norm.residual = execution.inputs[residual_input()].pointer<T>();
      norm.sum = execution.outputs[sum_output()].pointer<T>();
    }
    return norm;
  }

  NormOptions options_;
  bool weighted_;
  bool has_residual_;
  bool has_sum_;
  int64_t rotated_head_dim_;
};

}  // namespace

NormResult norm(Builder& builder, Value x, std::optional<Value> weight, const NormOptions& options,
                std::optional<Value> residual) {
  std::vector<Value> inputs{x};
  if (weight) inputs.push_back(*weight);
  if (residual) inputs.push_back(*residual);
  const auto operation = std::make_shared<Norm>(options, weight.has_value(),
                                                residual ? NormSum::with_residual : NormSum::none);
  const std::vector<Value> outputs = builder.apply(operation, std::move(inputs));
  return {outputs[0], residual ? outputs[operation->sum_output()] : Value{}};
}

NormResult norm_of_sum(Builder& builder, Value sum, std::optional<Value> weight,
                       const NormOptions& options) {
  std::vector<Value> inputs{sum};
  if (weight) inputs.push_back(*weight);
  const auto operation = std::make_shared<Norm>(options, weight.has_value(), NormSum::x_alone);
  const std::vector<Value> outputs = builder.apply(operation, std::move(inputs));
  return {outputs[0], outputs[operation->sum_output()]};
}

Value norm_and_rotary(Builder& builder, Value x, std::optional<Value> weight,
                      const NormOptions& options, Value table, int64_t head_dim) {
  std::vector<Value> inputs{x};
  if (weight) inputs.push_back(*weight);
  inputs.push_back(table);
  return builder.apply(std::make_shared<Norm>(options, weight.has_value(), NormSum::none, head_dim),
                       std::move(inputs))[0];
}

}  // namespace tessera
