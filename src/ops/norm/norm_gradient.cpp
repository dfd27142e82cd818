#include "ops/norm/norm_gradient.h"

#include "ops/norm/norm_kernels.h"
#include "ops/norm/norm_operands.h"
#include "ops/norm/norm_plain.h"
#include "ops/rotary/rotate.h"
#include "ops/support.h"

namespace tessera {
namespace {

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
    const auto rotated_back = [&]<typename T>(NormBackward<T> norm) {
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
        [&](const auto& norm) { norm_gradient_plain(rotated_back(norm), threads); },
        [&](const auto& norm) { norm_gradient_fast(rotated_back(norm), threads); });
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

}  // namespace

NormGradients norm_gradient(Builder& builder, const NormSaved& saved, Value output_gradient,
                            Value sum_gradient) {
  std::vector<Value> inputs{saved.normalised, saved.inverse_deviation, output_gradient};
  if (saved.weight) inputs.push_back(*saved.weight);
  if (saved.mean) inputs.push_back(*saved.mean);
  if (sum_gradient) inputs.push_back(sum_gradient);
  if (saved.rotary_table) inputs.push_back(*saved.rotary_table);
  const std::vector<Value> outputs = builder.apply(
      std::make_shared<NormGradient>(saved.weight.has_value(), saved.mean.has_value(),
                                     bool(sum_gradient), saved.by_heads, saved.head_dim),
      std::move(inputs));
  return {outputs[0], saved.weight ? outputs[1] : Value{}};
}

}  // namespace tessera
