#include "ops/update/sum_of_squares.h"

#include "base/interleaved_sum.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

// SumOfSquares makes one sum for each kSquaresElements elements of a section, and AddInOrder adds
// up such sums. On a device, each has a table of its sections in the workspace (device_table.h).

/// Returns Σ_i values[i]^2.
template <typename T>
double squares_of_piece(const T* values, int64_t count) {
  return interleaved_sum<double>(count, [=](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    return value * value;
  });
}

/// inputs: flat values; output: f64 [sum_count].
class SumOfSquares final : public Operation {
 public:
  SumOfSquares(std::vector<SquaresSection> sections, int64_t sum_count)
      : sections_(std::move(sections)),
        pieces_(plain_sections(sections_), kSquaresElements),
        sum_count_(sum_count) {}
  std::string_view name() const override { return "sum_of_squares"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return repeated("f@", inputs.size(), " + ") + " -> u" + tied("f@", inputs.size());
  }
  /// Returns a rule in which sharded units give a partial sum, whatever the kind of their pieces.
  /// On an axis on which a unit is not sharded, the labels decide.
  HandRule hand_rule() const override {
    return [](Axis, std::span<const TypeOnAxis> units) -> std::optional<std::vector<TypeOnAxis>> {
      const auto sharded = [](const TypeOnAxis& type) {
        return type.placement == Placement::sharded;
      };
      if (units.empty() || !std::ranges::all_of(units, sharded)) return std::nullopt;
      return std::vector{partial()};
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const auto& [section, first_sum] : sections_) {
      TESSERA_EXPECT(*this, section.unit >= 0 && section.unit < std::ssize(inputs), "unit {} of {}",
                     section.unit, inputs.size());
      const Spec& unit = inputs[static_cast<size_t>(section.unit)];
      TESSERA_EXPECT(*this,
                     unit.dtype == accumulation_dtype(unit.dtype) && section.begin >= 0 &&
                         section.end <= unit.shape.elements(),
                     "elements {} to {} of {}", section.begin, section.end, text_of(unit));
      TESSERA_EXPECT(
          *this,
          first_sum >= 0 && first_sum + squares_sums(section.end - section.begin) <= sum_count_,
          "sums from {} on of {}", first_sum, sum_count_);
    }
    return {{{sum_count_}, DType::f64, {}}};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<SquaresRow>(sections_.size());
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    execution.outputs[0].fill_zero();
    auto* const sums = execution.outputs[0].data<double>();
    pieces_.for_each(execution.runtime.threads(), [&](int64_t piece, size_t section_index,
                                                      int64_t begin, int64_t end) {
      const SquaresSection& squares = sections_[section_index];
      const Tensor& unit = execution.inputs[static_cast<size_t>(squares.section.unit)];
      dispatch_wide(unit.dtype(), [&]<typename T>(T) {
        sums[squares.first_sum + piece - pieces_.first_piece_of(section_index)] =
            squares_of_piece(unit.data<T>() + begin, end - begin);
      });
    });
  }

 private:
  void run_on_device(const Execution& execution) const {
    const Tensor& sums = execution.outputs[0];
    execution.stream->fill_zero(sums.address(), sums.bytes());
    std::vector<SquaresRow> rows;
    for (const auto& [section, first_sum] : sections_) {
      const Tensor& unit = execution.inputs[static_cast<size_t>(section.unit)];
      rows.push_back({.count = section.end - section.begin,
                      .first_sum = first_sum,
                      .values = unit.pointer<float>() + section.begin});
    }
    if (rows.empty()) return;
    const DeviceTable<SquaresRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      sum_of_squares_device<Vendor>(table, sums.pointer<double>(), *execution.stream);
    });
  }

  std::vector<SquaresSection> sections_;
  SectionPieces pieces_;
  int64_t sum_count_;
};

/// inputs: f64 [sums] each; output: f64 [1]. On a device, the workspace has the table of the
/// sections, and then the partial sums of blocks.
class AddInOrder final : public Operation {
 public:
  explicit AddInOrder(std::vector<Section> sections) : sections_(std::move(sections)) {}
  std::string_view name() const override { return "add_in_order"; }

  /// Returns labels for which a rank's sums are whole. Partial sums give a partial output.
  std::string labels(std::span<const Spec> inputs) const override {
    return repeated("~f@!", inputs.size(), " + ") + " -> u";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Section& section : sections_) {
      TESSERA_EXPECT(*this, section.unit >= 0 && section.unit < std::ssize(inputs), "sums {} of {}",
                     section.unit, inputs.size());
      const Spec& sums = inputs[static_cast<size_t>(section.unit)];
      TESSERA_EXPECT(
          *this,
          sums.dtype == DType::f64 && section.begin >= 0 && section.end <= sums.shape.elements(),
          "sums {} to {} of {}", section.begin, section.end, text_of(sums));
    }
    return {{{1}, DType::f64, {}}};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    if (target.device == Device::cpu) return 0;
    int64_t count = 0;
    for (const Section& section : sections_) count += section.end - section.begin;
    return table_bytes<SumsRow>(sections_.size()) +
           SumsRow::first_stage_blocks(count) * static_cast<int64_t>(sizeof(double));
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
  void run_on_device(const Execution& execution) const {
    std::vector<SumsRow> rows;
    for (const Section& section : sections_) {
      const Tensor& sums = execution.inputs[static_cast<size_t>(section.unit)];
      rows.push_back(
          {.count = section.end - section.begin, .values = sums.pointer<double>() + section.begin});
    }
    const DeviceTable<SumsRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      auto* const partial = reinterpret_cast<double*>(execution.workspace.data() +
                                                      table_bytes<SumsRow>(sections_.size()));
      add_in_order_device<Vendor>(table, partial, execution.outputs[0].pointer<double>(),
                                  *execution.stream);
    });
  }

  std::vector<Section> sections_;
};

}  // namespace

Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     std::vector<SquaresSection> sections, int64_t sum_count) {
  return builder.apply_single(std::make_shared<SumOfSquares>(std::move(sections), sum_count),
                              {units.begin(), units.end()});
}

Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     const std::vector<Section>& sections) {
  std::vector<SquaresSection> squares;
  int64_t sum_count = 0;
  for (const Section& section : sections) {
    squares.push_back({section, sum_count});
    sum_count += squares_sums(section.end - section.begin);
  }
  return sum_of_squares(builder, units, std::move(squares), sum_count);
}

Value add_in_order(Builder& builder, std::span<const Value> sums, std::vector<Section> sections) {
  return builder.apply_single(std::make_shared<AddInOrder>(std::move(sections)),
                              {sums.begin(), sums.end()});
}

}  // namespace tessera
