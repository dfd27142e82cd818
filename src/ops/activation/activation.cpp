#include "ops/activation/activation.h"

#include "ops/activation/activation_kernels.h"
#include "ops/activation/activation_plain.h"
#include "ops/labels.h"
#include "ops/support.h"

// The gated activation of feed-forward layers and experts, and its gradient. The rows of all
// experts are in one array, which offsets divide. The array has room for the most tokens that the
// experts may get. Only the rows before the last offset are computed.

namespace tessera {
namespace {

/// Returns `pattern` with labels filled in: {0} becomes the dims of gate, up and tensors like them,
/// and {1}, after the operands, the label of the offsets. With offsets, only the rows before the
/// last offset are computed.
std::string gated_labels(std::string_view pattern, std::span<const Spec> inputs, bool has_offsets) {
  const std::string dims = has_offsets ? "(E r) c" : element_labels(inputs[0].shape.rank());
  return fmt::format(fmt::runtime(pattern), dims, has_offsets ? ", (E r)" : "");
}

/// Returns the elements to compute of arrays like gate. The input with index `offsets_input`, if
/// there is one, has the offsets.
GatedExtent extent_of(const Execution& execution, size_t offsets_input) {
  const Tensor& gate = execution.inputs[0];
  if (execution.inputs.size() <= offsets_input) return {.elements = gate.elements()};
  const Tensor& offsets = execution.inputs[offsets_input];
  const int64_t width = gate.shape()[1];
  if (execution.stream == nullptr) return {.elements = offsets.values<int32_t>().back() * width};
  return {.elements = gate.elements(),
          .row_count = offsets.pointer<int32_t>() + offsets.elements() - 1,
          .width = width};
}

/// Runs the kernel on make_arguments(T{}), which returns a GatedForward or a GatedBackward.
template <typename MakeArguments>
void run_gated(const Execution& execution, Activation kind, MakeArguments&& make_arguments) {
  const int threads = execution.runtime.threads();
  run_kernel(
      execution, execution.inputs[0].dtype(), make_arguments,
      [&]<typename Vendor>(Vendor, const auto& arguments) {
        gated_device<Vendor>(arguments, kind, *execution.stream);
      },
      [&](const auto& arguments) { gated_plain(arguments, kind, threads); },
      [&](const auto& arguments) { gated_fast(arguments, kind, threads); });
}

/// inputs: gate, up, the gradient of the output, all of one spec, and offsets if there are some.
/// outputs: the gradients of gate and up.
class GatedActivationGradient final : public Operation {
 public:
  explicit GatedActivationGradient(Activation kind) : kind_(kind) {}
  std::string_view name() const override {
    return kind_ == Activation::silu ? "swiglu_gradient" : "geglu_gradient";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    return gated_labels("{0}, {0}, ~{0}{1} -> {0}, {0}", inputs, inputs.size() > 3);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 3 && is_like(inputs[2], inputs[0]),
                   "gate, up and a gradient of one shape and type");
    return {inputs[0], inputs[1]};
  }
  int in_place_input(int output) const override { return output; }

  void run(const Execution& execution) const override {
    run_gated(execution, kind_, [&]<typename T>(T) {
      return GatedBackward<T>{.extent = extent_of(execution, 3),
                              .gate = execution.inputs[0].pointer<T>(),
                              .up = execution.inputs[1].pointer<T>(),
                              .output_gradient = execution.inputs[2].pointer<T>(),
                              .gate_gradient = execution.outputs[0].pointer<T>(),
                              .up_gradient = execution.outputs[1].pointer<T>()};
    });
  }

 private:
  Activation kind_;
};

/// inputs: gate, up, and offsets if there are some. output: of gate's spec.
class GatedActivation final : public Operation {
 public:
  explicit GatedActivation(Activation kind) : kind_(kind) {}
  std::string_view name() const override { return kind_ == Activation::silu ? "swiglu" : "geglu"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return gated_labels("{0}, {0}{1} -> {0}", inputs, inputs.size() > 2);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2 && is_floating(inputs[0].dtype),
                   "a gate and an up of a floating type are needed");
    TESSERA_EXPECT(*this, is_like(inputs[0], inputs[1]), "gate is {}, up is {}", text_of(inputs[0]),
                   text_of(inputs[1]));
    TESSERA_EXPECT(
        *this,
        inputs.size() == 2 || (inputs.size() == 3 && inputs[0].shape.rank() == 2 &&
                               inputs[2].dtype == DType::i32 && inputs[2].shape.rank() == 1),
        "{} inputs; gate and up, and offsets of their rows, are expected", inputs.size());
    return {inputs[0]};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> inputs{self.inputs[0], self.inputs[1], output_gradients[0]};
    inputs.insert(inputs.end(), self.inputs.begin() + 2, self.inputs.end());
    std::vector<Value> gradients =
        builder.apply(std::make_shared<GatedActivationGradient>(kind_), std::move(inputs));
    gradients.resize(self.inputs.size());
    return gradients;
  }
  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    run_gated(execution, kind_, [&]<typename T>(T) {
      return GatedForward<T>{.extent = extent_of(execution, 2),
                             .gate = execution.inputs[0].pointer<T>(),
                             .up = execution.inputs[1].pointer<T>(),
                             .output = execution.outputs[0].pointer<T>()};
    });
  }

 private:
  Activation kind_;
};

}  // namespace

Value gated_activation(Builder& builder, Value gate, Value up, Activation kind,
                       std::optional<Value> offsets) {
  std::vector<Value> inputs{gate, up};
  if (offsets) inputs.push_back(*offsets);
  return builder.apply_single(std::make_shared<GatedActivation>(kind), std::move(inputs));
}

}  // namespace tessera
