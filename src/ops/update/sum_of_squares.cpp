#include "ops/update/sum_of_squares.h"

#include "base/interleaved_sum.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

template <typename T>
double sum_of_piece(const T* values, int64_t count) {
  return interleaved_sum<double>(count, [=](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    return value * value;
  });
}

/// inputs: flat values; output: f64 [1]. The workspace holds one sum per piece, on a device after
/// the table of the sections.
class SumOfSquares final : public Operation {
 public:
  explicit SumOfSquares(std::vector<Section> sections)
      : sections_(std::move(sections)), pieces_(sections_) {}
  std::string_view name() const override { return "sum_of_squares"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return repeated("f#", inputs.size(), " + ") + " -> u" + tied("f#", inputs.size());
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Section& section : sections_) {
      TESSERA_EXPECT(*this, section.unit >= 0 && section.unit < std::ssize(inputs), "unit {} of {}",
                     section.unit, inputs.size());
      const Spec& unit = inputs[static_cast<size_t>(section.unit)];
      TESSERA_EXPECT(*this,
                     unit.dtype == accumulation_dtype(unit.dtype) && section.begin >= 0 &&
                         section.end <= unit.shape.elements(),
                     "elements {} to {} of {} {}", section.begin, section.end,
                     dtype_name(unit.dtype), unit.shape.text());
    }
    return {{{1}, DType::f64, {}}};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    if (target.device != Device::cpu) {
      int64_t blocks = 0;
      for (const Section& section : sections_) {
        blocks += row_blocks<SquaresRow>(section.end - section.begin);
      }
      return table_bytes<SquaresRow>(sections_.size()) + blocks * dtype_size(DType::f64);
    }
    return pieces_.count() * dtype_size(DType::f64);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    auto* const sums = reinterpret_cast<double*>(execution.workspace.data());
    pieces_.for_each(execution.runtime.threads(), [&](int64_t piece, size_t section, int64_t begin,
                                                      int64_t end) {
      const Tensor& unit = execution.inputs[static_cast<size_t>(sections_[section].unit)];
      dispatch_wide(unit.dtype(), [&](auto type) {
        sums[piece] = sum_of_piece(unit.data<decltype(type)>() + begin, end - begin);
      });
    });
    double total = 0;
    for (int64_t piece = 0; piece < pieces_.count(); ++piece) total += sums[piece];
    *execution.outputs[0].data<double>() = total;
  }

 private:
  void run_on_device(const Execution& execution) const {
    std::vector<SquaresRow> rows;
    for (const Section& section : sections_) {
      const Tensor& unit = execution.inputs[static_cast<size_t>(section.unit)];
      rows.push_back(
          {.count = section.end - section.begin, .values = unit.pointer<float>() + section.begin});
    }
    auto* const partial = reinterpret_cast<double*>(execution.workspace.data() +
                                                    table_bytes<SquaresRow>(rows.size()));
    const DeviceTable<SquaresRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream, [&](auto vendor) {
      sum_of_squares_device<decltype(vendor)>(
          table, partial, execution.outputs[0].pointer<double>(), *execution.stream);
    });
  }

  std::vector<Section> sections_;
  SectionPieces pieces_;
};

}  // namespace

Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     std::vector<Section> sections) {
  return builder.apply_single(std::make_shared<SumOfSquares>(std::move(sections)),
                              {units.begin(), units.end()});
}

}  // namespace tessera
