#include "ops/update/kept_values.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "device/stream.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

// The operations on values that a run keeps from step to step: rounding, zeroing, copying, and
// RunningSum, which adds the losses of a step's micro-batches. On a device, rounding and zeroing
// handle all values in one launch over a table (device_table.h), and the other operations take a
// copy or a launch for each value.

/// The base of the operations whose last `count` inputs are the targets, which are only written. As
/// many sources are before the targets, if there are any, and before them there may be a scale.
class WriteKept : public Operation {
 public:
  WriteKept(size_t count, size_t first_target) : count_(count), first_target_(first_target) {}

  std::string labels(std::span<const Spec>) const override {
    return (has_scale() ? "u!, " : "") + repeated("f@", count_) + " -> " +
           repeated("+= f@", count_);
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {})};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> targets(count_);
    std::iota(targets.begin(), targets.end(), static_cast<int>(first_target_));
    return targets;
  }

 protected:
  bool has_scale() const { return first_target_ > count_; }
  size_t source_input(size_t i) const { return first_target_ - count_ + i; }
  size_t target_input(size_t i) const { return first_target_ + i; }

  /// Returns the distributions of the targets, which are those of the sources. The sources must not
  /// be partial. `noun` names a source in errors.
  std::vector<TypeOnAxis> target_types(std::span<const TypeOnAxis> sources,
                                       std::string_view noun) const {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].placement != Placement::partial) continue;
      throw DistributionError(
          fmt::format("{}: {} {} is partial; expected its sum taken", name(), noun, i));
    }
    return {sources.begin(), sources.end()};
  }

  size_t count_;
  size_t first_target_;
};

/// The operation of copy_kept().
class CopyKept final : public WriteKept {
 public:
  using WriteKept::WriteKept;
  std::string_view name() const override { return "copy_kept"; }

  /// Returns a rule that also expects the same scale on all ranks.
  HandRule hand_rule() const override {
    return [this](Axis, std::span<const TypeOnAxis> inputs) {
      if (has_scale() && !inputs[0].same_on_ranks()) {
        throw DistributionError(fmt::format(
            "copy_kept: the scale is {}; expected one number for all ranks", inputs[0].text()));
      }
      return target_types(inputs.last(count_), "source");
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == target_input(count_), "{} inputs", inputs.size());
    TESSERA_EXPECT(*this, !has_scale() || is_like(inputs[0], {{1}, DType::f64}),
                   "a scale {}; f64 [1] is expected", text_of(inputs[0]));
    for (size_t i = 0; i < count_; ++i) {
      const Spec& source = inputs[source_input(i)];
      const Spec& target = inputs[target_input(i)];
      TESSERA_EXPECT(*this, is_like(source, target), "a source {} of a target {}", text_of(source),
                     text_of(target));
    }
    return {};
  }
  void run(const Execution& execution) const override {
    const bool on_host = execution.stream == nullptr;
    if (has_scale() && on_host && std::isnan(*execution.inputs[0].data<double>())) return;
    for (size_t i = 0; i < count_; ++i) {
      const Tensor& source = execution.inputs[source_input(i)];
      const Tensor& target = execution.inputs[target_input(i)];
      if (on_host) {
        target.copy_from(source);
      } else if (!has_scale()) {
        execution.stream->copy(target.address(), source.address(), source.bytes());
      } else {
        for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
          copy_if_finite_device<Vendor>(execution.inputs[0].pointer<double>(), source.elements(),
                                        source.pointer<float>(), target.pointer<float>(),
                                        *execution.stream);
        });
      }
    }
  }
};

/// The operation of round_to_weights(). The sources are the masters, the targets the weights.
class RoundToWeights final : public WriteKept {
 public:
  explicit RoundToWeights(size_t count) : WriteKept(count, count) {}
  std::string_view name() const override { return "round_to_weights"; }

  HandRule hand_rule() const override {
    return [this](Axis, std::span<const TypeOnAxis> masters) {
      return target_types(masters, "master");
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2 * count_, "{} masters and weights", inputs.size());
    for (size_t i = 0; i < count_; ++i) {
      TESSERA_EXPECT(*this,
                     inputs[i].dtype == DType::f32 && inputs[count_ + i].dtype == DType::bf16 &&
                         inputs[i].shape == inputs[count_ + i].shape,
                     "a master {} of a weight {}", text_of(inputs[i]), text_of(inputs[count_ + i]));
    }
    return {};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<RoundRow>(count_);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    // weight[e] = master[e], rounded to bf16
    for (size_t i = 0; i < count_; ++i) {
      const float* master = execution.inputs[i].data<float>();
      auto* weight = execution.inputs[count_ + i].data<BFloat16>();
      parallel_each(execution.runtime.threads(), execution.inputs[i].elements(), 1 << 16,
                    [=](int64_t e) { weight[e] = static_cast<BFloat16>(master[e]); });
    }
  }

 private:
  void run_on_device(const Execution& execution) const {
    std::vector<RoundRow> rows;
    for (size_t i = 0; i < count_; ++i) {
      if (execution.inputs[i].elements() == 0) continue;  // a unit that other ranks have
      rows.push_back({.count = execution.inputs[i].elements(),
                      .master = execution.inputs[i].pointer<float>(),
                      .weight = execution.inputs[count_ + i].pointer<BFloat16>()});
    }
    if (rows.empty()) return;
    const DeviceTable<RoundRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream,
               [&]<typename Vendor>(Vendor) { round_device<Vendor>(table, *execution.stream); });
  }
};

/// The operation of zero(). inputs: the values, which are only written.
class Zero final : public WriteKept {
 public:
  explicit Zero(size_t count) : WriteKept(count, 0) {}
  std::string_view name() const override { return "zero"; }

  std::string labels(std::span<const Spec> inputs) const override {
    std::string labels = "->";
    for (size_t i = 0; i < inputs.size(); ++i) {
      labels += (i == 0 ? " += ?" : ", += ?") + element_labels(inputs[i].shape.rank());
    }
    return labels;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == count_, "{} values", inputs.size());
    return {};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<ZeroRow>(count_);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      std::vector<ZeroRow> rows;
      for (const Tensor& value : execution.inputs) {
        rows.push_back({.count = value.bytes(), .start = static_cast<std::byte*>(value.address())});
      }
      const DeviceTable<ZeroRow> table = put_table(execution, std::move(rows));
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        zero_device<Vendor>(table, *execution.stream);
      });
    }
    for (const Tensor& value : execution.inputs) {
      std::byte* memory = value.raw();
      parallel_ranges(execution.runtime.threads(), value.bytes(), 1 << 20,
                      [=](int64_t begin, int64_t end, int) {
                        std::memset(memory + begin, 0, static_cast<size_t>(end - begin));
                      });
    }
  }
};

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

void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale) {
  std::vector<Value> inputs;
  if (scale) inputs.push_back(*scale);
  const size_t count = sources.size();
  inputs.insert(inputs.end(), sources.begin(), sources.end());
  inputs.insert(inputs.end(), targets.begin(), targets.end());
  builder.apply(std::make_shared<CopyKept>(count, count + size_t{scale.has_value()}),
                std::move(inputs));
}

void round_to_weights(Builder& builder, std::span<const Value> masters,
                      std::span<const Value> weights) {
  std::vector<Value> inputs(masters.begin(), masters.end());
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  builder.apply(std::make_shared<RoundToWeights>(masters.size()), std::move(inputs));
}

void zero(Builder& builder, std::span<const Value> values) {
  builder.apply(std::make_shared<Zero>(values.size()), {values.begin(), values.end()});
}

void add_to_sum(Builder& builder, Value sum, Value value) {
  builder.apply(std::make_shared<RunningSum>(), {sum, value});
}

}  // namespace tessera
