#include "ops/update/add_in_order.h"

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

/// inputs: f64 [sums] each; output: f64 [1]. On a device, the workspace has the table of the
/// sections, and then the partial sums of blocks.
class AddInOrder final : public Operation {
 public:
  explicit AddInOrder(std::vector<Section> sections) : sections_(std::move(sections)) {}
  std::string_view name() const override { return "add_in_order"; }

  /// Returns labels for which a rank's sums are whole. Partial sums give a partial output.
  std::string labels(std::span<const Spec> inputs) const override {
    return repeated("~f#!", inputs.size(), " + ") + " -> u";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Section& section : sections_) {
      TESSERA_EXPECT(*this, section.unit >= 0 && section.unit < std::ssize(inputs), "sums {} of {}",
                     section.unit, inputs.size());
      const Spec& sums = inputs[static_cast<size_t>(section.unit)];
      TESSERA_EXPECT(
          *this,
          sums.dtype == DType::f64 && section.begin >= 0 && section.end <= sums.shape.elements(),
          "sums {} to {} of {} {}", section.begin, section.end, dtype_name(sums.dtype),
          sums.shape.text());
    }
    return {{{1}, DType::f64, {}}};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    if (target.device == Device::cpu) return 0;
    return table_bytes<SumsRow>(sections_.size()) +
           SumsRow::first_stage_blocks(count_of_sums()) * static_cast<int64_t>(sizeof(double));
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    // output = Σ over the sections, in order, of Σ_i sums[i]
    double total = 0;
    for (const Section& section : sections_) {
      const auto* sums = execution.inputs[static_cast<size_t>(section.unit)].data<double>();
      for (int64_t i = section.begin; i < section.end; ++i) total += sums[i];
    }
    *execution.outputs[0].data<double>() = total;
  }

 private:
  int64_t count_of_sums() const {
    int64_t count = 0;
    for (const Section& section : sections_) count += section.end - section.begin;
    return count;
  }

  void run_on_device(const Execution& execution) const {
    std::vector<SumsRow> rows;
    for (const Section& section : sections_) {
      const Tensor& sums = execution.inputs[static_cast<size_t>(section.unit)];
      rows.push_back(
          {.count = section.end - section.begin, .values = sums.pointer<double>() + section.begin});
    }
    const DeviceTable<SumsRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream, [&](auto vendor) {
      auto* const partial = reinterpret_cast<double*>(execution.workspace.data() +
                                                      table_bytes<SumsRow>(sections_.size()));
      add_in_order_device<decltype(vendor)>(table, partial, execution.outputs[0].pointer<double>(),
                                            *execution.stream);
    });
  }

  std::vector<Section> sections_;
};

}  // namespace

Value add_in_order(Builder& builder, std::span<const Value> sums, std::vector<Section> sections) {
  return builder.apply_single(std::make_shared<AddInOrder>(std::move(sections)),
                              {sums.begin(), sums.end()});
}

}  // namespace tessera
