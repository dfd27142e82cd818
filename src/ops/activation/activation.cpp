#include "ops/activation/activation.h"

#include "ops/activation/activation_kernels.h"
#include "ops/activation/activation_plain.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: gate, up, the output's gradient, all of one spec. outputs: gate's and up's gradients.
class GatedActivationGradient final : public Operation {
 public:
  explicit GatedActivationGradient(Activation kind) : kind_(kind) {}
  std::string_view name() const override {
    return kind_ == Activation::silu ? "swiglu_gradient" : "geglu_gradient";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    const std::string dims = element_labels(inputs[0].shape.rank());
    return fmt::format("{0}, {0}, ~{0} -> {0}, {0}", dims);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 3 && inputs[2].shape == inputs[0].shape &&
                       inputs[2].dtype == inputs[0].dtype,
                   "gate, up and a gradient of one shape and type");
    return {inputs[0], inputs[1]};
  }
  int in_place_input(int output) const override { return output; }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        gated_gradient_device<decltype(vendor)>(arguments<decltype(type)>(execution), kind_,
                                                *execution.stream);
      });
      return;
    }
    dispatch_floating(execution.inputs[0].dtype(), [&](auto type) {
      using T = decltype(type);
      const GatedBackward<T> gated = arguments<T>(execution);
      const int threads = execution.runtime.threads();
      if constexpr (std::is_same_v<T, double>) {
        gated_gradient_plain(gated, kind_, threads);
      } else {
        use_plain(execution.runtime.target(), dtype_of<T>)
            ? gated_gradient_plain(gated, kind_, threads)
            : gated_gradient_fast(gated, kind_, threads);
      }
    });
  }

 private:
  template <typename T>
  static GatedBackward<T> arguments(const Execution& execution) {
    return {.elements = execution.inputs[0].elements(),
            .gate = execution.inputs[0].pointer<T>(),
            .up = execution.inputs[1].pointer<T>(),
            .output_gradient = execution.inputs[2].pointer<T>(),
            .gate_gradient = execution.outputs[0].pointer<T>(),
            .up_gradient = execution.outputs[1].pointer<T>()};
  }

  Activation kind_;
};

/// inputs: gate, up. output: of the same spec.
class GatedActivation final : public Operation {
 public:
  explicit GatedActivation(Activation kind) : kind_(kind) {}
  std::string_view name() const override { return kind_ == Activation::silu ? "swiglu" : "geglu"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const std::string dims = element_labels(inputs[0].shape.rank());
    return fmt::format("{0}, {0} -> {0}", dims);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 && is_floating(inputs[0].dtype),
                   "a gate and an up of a floating type are needed");
    TESSERA_EXPECT(*this, inputs[0].shape == inputs[1].shape && inputs[0].dtype == inputs[1].dtype,
                   "gate is {} {}, up is {} {}", dtype_name(inputs[0].dtype),
                   inputs[0].shape.text(), dtype_name(inputs[1].dtype), inputs[1].shape.text());
    return {inputs[0]};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    return builder.apply(std::make_shared<GatedActivationGradient>(kind_),
                         {self.inputs[0], self.inputs[1], of_outputs[0]});
  }
  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        gated_device<decltype(vendor)>(arguments<decltype(type)>(execution), kind_,
                                       *execution.stream);
      });
      return;
    }
    dispatch_floating(execution.inputs[0].dtype(), [&](auto type) {
      using T = decltype(type);
      const GatedForward<T> gated = arguments<T>(execution);
      const int threads = execution.runtime.threads();
      if constexpr (std::is_same_v<T, double>) {
        gated_plain(gated, kind_, threads);
      } else {
        use_plain(execution.runtime.target(), dtype_of<T>) ? gated_plain(gated, kind_, threads)
                                                           : gated_fast(gated, kind_, threads);
      }
    });
  }

 private:
  template <typename T>
  static GatedForward<T> arguments(const Execution& execution) {
    return {.elements = execution.inputs[0].elements(),
            .gate = execution.inputs[0].pointer<T>(),
            .up = execution.inputs[1].pointer<T>(),
            .output = execution.outputs[0].pointer<T>()};
  }

  Activation kind_;
};

}  // namespace

Value gated_activation(Builder& builder, Value gate, Value up, Activation kind) {
  return builder.apply_single(std::make_shared<GatedActivation>(kind), {gate, up});
}

}  // namespace tessera
