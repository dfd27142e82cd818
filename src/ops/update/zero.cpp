#include "ops/update/zero.h"

#include <cstring>
#include <numeric>

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

class Zero final : public Operation {
 public:
  explicit Zero(size_t count) : count_(count) {}
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
  /// Counts the values as written only.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {})};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> all(count_);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<ZeroRow>(count_);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    for (const Tensor& value : execution.inputs) {
      std::byte* memory = value.raw();
      parallel_ranges(execution.runtime.threads(), value.bytes(), 1 << 20,
                      [=](int64_t begin, int64_t end, int) {
                        std::memset(memory + begin, 0, static_cast<size_t>(end - begin));
                      });
    }
  }

 private:
  static void run_on_device(const Execution& execution) {
    std::vector<ZeroRow> rows;
    for (const Tensor& value : execution.inputs) {
      rows.push_back({.count = value.bytes(), .start = static_cast<std::byte*>(value.address())});
    }
    const DeviceTable<ZeroRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream,
               [&](auto vendor) { zero_device<decltype(vendor)>(table, *execution.stream); });
  }

  size_t count_;
};

}  // namespace

void zero(Builder& builder, std::span<const Value> values) {
  builder.apply(std::make_shared<Zero>(values.size()), {values.begin(), values.end()});
}

}  // namespace tessera
