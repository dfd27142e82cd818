#include "ops/update/running_sum.h"

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// inputs: the sum, f64 [1] or of the value's shape, which run() adds to; then the value.
class RunningSum final : public Operation {
 public:
  std::string_view name() const override { return "running_sum"; }

  /// Returns labels by which a partial value makes the sum partial.
  std::string labels(std::span<const Spec> inputs) const override {
    const std::string dims = element_labels(inputs[1].shape.rank());
    return "~" + dims + " -> += " + (inputs[0].shape == Shape{1} ? "u" : dims);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2, "{} inputs", inputs.size());
    const Spec& sum = inputs[0];
    const Spec& value = inputs[1];
    TESSERA_EXPECT(
        *this,
        sum.dtype == DType::f64 && (sum.shape == Shape{1} || sum.shape == value.shape) &&
            (value.dtype == DType::i32 || value.dtype == DType::f64 || value.dtype == DType::f32),
        "{} added to {}", text_of(value), text_of(sum));
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {}, updated_inputs())};
  }
  std::vector<int> updated_inputs() const override { return {0}; }

  void run(const Execution& execution) const override {
    const DType dtype = execution.inputs[1].dtype();
    if (dtype == DType::i32) return add<int32_t>(execution);
    if (dtype == DType::f32) return add<float>(execution);
    add<double>(execution);
  }

 private:
  template <typename T>
  static void add(const Execution& execution) {
    const Tensor& sum = execution.inputs[0];
    const Tensor& value = execution.inputs[1];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        running_sum_device<Vendor>(sum.pointer<double>(), sum.elements(), value.pointer<T>(),
                                   value.elements(), *execution.stream);
      });
    }
    add_on_processor<T>(sum.values<double>(), value.values<T>());
  }

  /// Adds sum[0] += Σ_i value[i], or sum[i] += value[i], in the order of i.
  template <typename T>
  static void add_on_processor(std::span<double> sum, std::span<const T> value) {
    if (sum.size() != 1) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(value[i]);
      return;
    }
    double total = 0;
    for (const T element : value) total += static_cast<double>(element);
    sum[0] += total;
  }
};

}  // namespace

void add_to_sum(Builder& builder, Value sum, Value value) {
  builder.apply(std::make_shared<RunningSum>(), {sum, value});
}

}  // namespace tessera
