#include "ops/elementwise/elementwise.h"

#include "ops/elementwise/elementwise_kernels.h"
#include "ops/labels.h"
#include "ops/support.h"

// Operations on single elements: add, scale, clamp, cast and accumulate. map_elements() and
// map_pairs() are the processor's loops; a device has the kernels of elementwise_kernels.h. There
// are no plain kernels: the formulas stand beside the calls.

namespace tessera {
namespace {

/// The number of elements that are worth the start of a thread.
constexpr int64_t kElementGrain = 16384;

/// Computes output[i] = function(input[i]) in the input's compute type and converts the result to
/// the output's type. The loops vectorise.
template <typename Function>
void map_elements(const Execution& execution, Function function) {
  const Tensor &input = execution.inputs[0], &output = execution.outputs[0];
  dispatch_floating(input.dtype(), [&]<typename From>(From) {
    dispatch_floating(output.dtype(), [&]<typename To>(To) {
      const From* x = input.data<From>();
      To* y = output.data<To>();
      parallel_ranges(execution.runtime.threads(), output.elements(), kElementGrain,
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          y[i] = static_cast<To>(
                              static_cast<Compute<To>>(function(static_cast<Compute<From>>(x[i]))));
                        }
                      });
    });
  });
}

/// Computes output[i] = function(first[i], second[i]). Each operand is in its own compute type, and
/// the result is converted to the output's type.
template <typename Function>
void map_pairs(const Execution& execution, Function function) {
  const Tensor &first = execution.inputs[0], &second = execution.inputs[1];
  const Tensor& output = execution.outputs[0];
  dispatch_floating(first.dtype(), [&]<typename First>(First) {
    dispatch_floating(second.dtype(), [&]<typename Second>(Second) {
      dispatch_floating(output.dtype(), [&]<typename Output>(Output) {
        const First* x = first.data<First>();
        const Second* y = second.data<Second>();
        Output* z = output.data<Output>();
        parallel_ranges(
            execution.runtime.threads(), output.elements(), kElementGrain,
            [=](int64_t begin, int64_t end, int) {
              for (int64_t i = begin; i < end; ++i) {
                z[i] = static_cast<Output>(static_cast<Compute<Output>>(function(
                    static_cast<Compute<First>>(x[i]), static_cast<Compute<Second>>(y[i]))));
              }
            });
      });
    });
  });
}

/// Enqueues output[i] = map(input[i]) on the execution's device.
void map_on_device(const Execution& execution, ElementMap map, double argument) {
  const Tensor &input = execution.inputs[0], &output = execution.outputs[0];
  on_device(execution, [&]<typename Vendor, typename From>(Vendor, From) {
    dispatch_device(output.dtype(), [&]<typename To>(To) {
      map_device<Vendor>(map, argument, input.pointer<From>(), output.pointer<To>(),
                         output.elements(), *execution.stream);
    });
  });
}

class Add final : public Operation {
 public:
  explicit Add(DType dtype) : dtype_(dtype) {}
  std::string_view name() const override { return "add"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const std::string dims = element_labels(inputs[0].shape.rank());
    return repeated("~" + dims, inputs.size(), " + ") + " -> " + dims;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, !inputs.empty(), "no addends");
    for (const Spec& input : inputs) {
      TESSERA_EXPECT(*this, input.shape == inputs[0].shape && is_floating(input.dtype),
                     "an addend is {}, the first is {}", text_of(input), inputs[0].shape.text());
    }
    return {{inputs[0].shape, dtype_}};
  }

  std::vector<Value> gradient(Builder&, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return std::vector<Value>(self.inputs.size(), output_gradients[0]);
  }

  /// Returns the first addend: each of its elements is read before the sum is written there.
  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    const Tensor& sum = execution.outputs[0];
    if (execution.stream != nullptr) return add_on_device(execution, sum);
    dispatch_wide(accumulation_dtype(dtype_),
                  [&]<typename Wide>(Wide) { add_all<Wide>(execution, sum); });
  }

 private:
  static void add_on_device(const Execution& execution, const Tensor& sum) {
    Addends addends{.count = static_cast<int>(execution.inputs.size())};
    TESSERA_CHECK(addends.count <= Addends::kMost, "a sum of {} values; a device adds up to {}",
                  addends.count, Addends::kMost);
    for (size_t i = 0; i < execution.inputs.size(); ++i) {
      const DType dtype = execution.inputs[i].dtype();
      TESSERA_CHECK((dtype == DType::f64) == (sum.dtype() == DType::f64), "a device adds {} to {}",
                    dtype_name(dtype), dtype_name(sum.dtype()));
      addends.elements[i] = execution.inputs[i].address();
      addends.are_bf16[i] = dtype == DType::bf16;
    }
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      if (sum.dtype() == DType::f64) {
        return add_device<Vendor>(addends, sum.pointer<double>(), sum.elements(),
                                  *execution.stream);
      }
      dispatch_device(sum.dtype(), [&]<typename T>(T) {
        add_device<Vendor>(addends, sum.pointer<T>(), sum.elements(), *execution.stream);
      });
    });
  }

  /// Writes sum[i] = Σ_k addends[k][i], one block of elements at a time. The totals of a block stay
  /// in the first-level cache until all addends are added, and are then rounded.
  template <typename Wide>
  static void add_all(const Execution& execution, const Tensor& sum) {
    constexpr int64_t kBlock = 2048;
    parallel_ranges(execution.runtime.threads(), sum.elements(), 8 * kBlock,
                    [&](int64_t begin, int64_t end, int) {
                      Wide total[kBlock];
                      for (int64_t first = begin; first < end; first += kBlock) {
                        const int64_t count = std::min(kBlock, end - first);
                        std::fill_n(total, count, Wide{0});
                        for (const Tensor& addend : execution.inputs) {
                          dispatch_floating(addend.dtype(), [&]<typename T>(T) {
                            const T* values = addend.data<T>() + first;
                            for (int64_t i = 0; i < count; ++i) {
                              total[i] += static_cast<Wide>(static_cast<Compute<T>>(values[i]));
                            }
                          });
                        }
                        dispatch_floating(sum.dtype(), [&]<typename T>(T) {
                          T* result = sum.data<T>() + first;
                          for (int64_t i = 0; i < count; ++i) {
                            result[i] = static_cast<T>(static_cast<Compute<T>>(total[i]));
                          }
                        });
                      }
                    });
  }

  DType dtype_;
};

/// The base of the operations below. {0} in `labels` stands for the dims of the first input.
class ElementOperation : public Operation {
 public:
  ElementOperation(std::string_view name, std::string_view labels, double argument = 0)
      : argument_(argument), name_(name), labels_(labels) {}
  std::string_view name() const override { return name_; }
  std::string labels(std::span<const Spec> inputs) const override {
    return fmt::format(fmt::runtime(labels_), element_labels(inputs[0].shape.rank()));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1 && is_floating(inputs[0].dtype), "one floating input");
    return {inputs[0]};
  }

 protected:
  double argument_;

 private:
  std::string_view name_;
  std::string_view labels_;
};

class Scale final : public ElementOperation {
 public:
  explicit Scale(double factor) : ElementOperation("scale", "~{0} -> {0}", factor) {}
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    return {scale(builder, output_gradients[0], argument_)};
  }
  bool takes_wide_gradients() const override { return true; }
  int in_place_input(int) const override { return 0; }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return map_on_device(execution, ElementMap::scale, argument_);
    // y[i] = factor * x[i]
    map_elements(execution, [factor = argument_](auto x) {
      return static_cast<decltype(x)>(x * static_cast<decltype(x)>(factor));
    });
  }
};

/// inputs: x, the gradient of clamp(x).
class ClampGradient final : public ElementOperation {
 public:
  explicit ClampGradient(double bound)
      : ElementOperation("clamp_gradient", "{0}, ~{0} -> {0}", bound) {}
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 && inputs[0].shape == inputs[1].shape,
                   "two inputs of one shape");
    return {inputs[1]};
  }
  int in_place_input(int) const override { return 1; }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        clamp_gradient_device<Vendor>(
            argument_, execution.inputs[0].pointer<T>(), execution.inputs[1].pointer<T>(),
            execution.outputs[0].pointer<T>(), execution.outputs[0].elements(), *execution.stream);
      });
    }
    // x_gradient[i] = y_gradient[i] if -bound <= x[i] <= bound, otherwise 0
    map_pairs(execution, [bound = argument_](auto x, auto gradient) {
      const auto limit = static_cast<decltype(x)>(bound);
      return x >= -limit && x <= limit ? gradient : decltype(gradient){0};
    });
  }
};

class Clamp final : public ElementOperation {
 public:
  explicit Clamp(double bound) : ElementOperation("clamp", "{0} -> {0}", bound) {}
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, argument_ > 0, "a bound of {}; it must be positive", argument_);
    return ElementOperation::infer(inputs);
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return {builder.apply_single(std::make_shared<ClampGradient>(argument_),
                                 {self.inputs[0], output_gradients[0]})};
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return map_on_device(execution, ElementMap::clamp, argument_);
    // y[i] = min(max(x[i], -bound), bound)
    map_elements(execution, [bound = argument_](auto x) {
      const auto limit = static_cast<decltype(x)>(bound);
      return x < -limit ? -limit : (x > limit ? limit : x);
    });
  }
};

class Cast final : public ElementOperation {
 public:
  explicit Cast(DType dtype) : ElementOperation("cast", "~{0} -> {0}"), dtype_(dtype) {}
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    ElementOperation::infer(inputs);
    TESSERA_EXPECT(*this, is_floating(dtype_), "a cast to {}", dtype_name(dtype_));
    return {{inputs[0].shape, dtype_}};
  }
  std::vector<Value> gradient(Builder&, const Node&,
                              std::span<const Value> output_gradients) const override {
    return {output_gradients[0]};
  }
  bool cheap_to_repeat() const override { return true; }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return map_on_device(execution, ElementMap::copy, 0);
    // y[i] = x[i]
    map_elements(execution, [](auto x) { return x; });
  }

 private:
  DType dtype_;
};

/// inputs: the accumulator, which run() adds to, and the addend.
class Accumulate final : public ElementOperation {
 public:
  Accumulate() : ElementOperation("accumulate", "~{0} -> += {0}") {}
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 && inputs[0].shape == inputs[1].shape,
                   "an accumulator and an addend of one shape");
    return {};
  }
  std::vector<int> updated_inputs() const override { return {0}; }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename Total>(Vendor, Total) {
        dispatch_device(execution.inputs[1].dtype(), [&]<typename Addend>(Addend) {
          accumulate_device<Vendor>(execution.inputs[0].pointer<Total>(),
                                    execution.inputs[1].pointer<Addend>(),
                                    execution.inputs[0].elements(), *execution.stream);
        });
      });
    }
    // map_pairs() writes to the first output, which is the accumulator here.
    const Execution in_place{execution.runtime, execution.inputs, execution.inputs.first(1), {}};
    // total[i] += addend[i]
    map_pairs(in_place, [](auto total, auto addend) { return total + addend; });
  }
};

/// The operation of zeros(). Output: zeros.
class Zeros final : public Operation {
 public:
  explicit Zeros(Spec spec) : spec_(std::move(spec)) {}
  std::string_view name() const override { return "zeros"; }
  std::string labels(std::span<const Spec>) const override { return "-> zeros"; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector{spec_.distribution};
  }
  std::vector<Spec> infer(std::span<const Spec>) const override {
    return {{spec_.shape, spec_.dtype, {}}};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec> outputs) const override {
    return {.bytes = static_cast<double>(outputs[0].bytes())};
  }
  void run(const Execution& execution) const override {
    const Tensor& output = execution.outputs[0];
    if (execution.stream == nullptr) return output.fill_zero();
    execution.stream->fill_zero(output.address(), output.bytes());
  }

 private:
  Spec spec_;
};

}  // namespace

Value add(Builder& builder, std::span<const Value> addends, DType dtype) {
  return builder.apply_single(std::make_shared<Add>(dtype), {addends.begin(), addends.end()});
}

Value scale(Builder& builder, Value x, double factor) {
  return builder.apply_single(std::make_shared<Scale>(factor), {x});
}

Value clamp(Builder& builder, Value x, double bound) {
  return builder.apply_single(std::make_shared<Clamp>(bound), {x});
}

Value cast(Builder& builder, Value x, DType dtype) {
  if (builder.spec(x).dtype == dtype) return x;
  return builder.apply_single(std::make_shared<Cast>(dtype), {x});
}

Value zeros(Builder& builder, const Spec& spec) {
  return builder.apply_single(std::make_shared<Zeros>(spec), {});
}

void accumulate(Builder& builder, Value accumulator, Value addend) {
  builder.apply(std::make_shared<Accumulate>(), {accumulator, addend});
}

}  // namespace tessera
