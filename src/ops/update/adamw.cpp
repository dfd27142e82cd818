#include "ops/update/adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/device_table.h"

namespace tessera {
namespace {

// AdamW is one operation over all units. On the processor, threads share pieces of the sections,
// and update() handles a piece. On a device, one launch handles a table of the sections (adamw.cu).

/// The coefficients of one step, in the accumulation type. update() has the formulas.
template <typename Wide>
struct Coefficients {
  Wide beta1, beta2, epsilon, keep, step_size, inverse_correction2, scale;
};

/// Updates the elements [begin, end), which are independent (ivdep). The moments are m and v.
///   g = scale * gradient, m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2
///   w = keep * w - step_size * m / (sqrt(v * inverse_correction2) + epsilon)
///   keep = 1 - lr * decay, step_size = lr / (1 - beta1^t), inverse_correction2 = 1 / (1 - beta2^t)
template <typename Wide, typename Weight>
void update(const Coefficients<Wide>& c, int64_t begin, int64_t end, const Wide* gradient,
            Wide* first_moment, Wide* second_moment, Wide* master, Weight* weight) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const Wide g = c.scale * gradient[i];
    const Wide m = c.beta1 * first_moment[i] + (1 - c.beta1) * g;
    const Wide v = c.beta2 * second_moment[i] + (1 - c.beta2) * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    const Wide w =
        c.keep * master[i] - c.step_size * m / (std::sqrt(v * c.inverse_correction2) + c.epsilon);
    master[i] = w;
    weight[i] = static_cast<Weight>(w);
  }
}

/// The inputs of one unit (section.h): the gradient, the two moments, the master, and the weight if
/// it is a rounded copy of the master.
struct UnitInputs {
  size_t gradient;  // the index of the gradient, the first of the unit's inputs
  bool has_rounded_weight;
};

/// The number of inputs before the inputs of the units: scale, learning rate and step.
constexpr size_t kStepInputs = 3;

/// Returns the number of a unit's inputs that are updated: all but the gradient.
size_t state_count(const UnitInputs& unit) { return unit.has_rounded_weight ? 4 : 3; }

/// inputs: scale, learning rate, step, then the inputs of the units.
class AdamW final : public Operation {
 public:
  AdamW(std::vector<UnitInputs> units, std::vector<AdamWSection> sections,
        const AdamWOptions& options)
      : units_(std::move(units)),
        sections_(std::move(sections)),
        pieces_(plain_sections(sections_)),
        options_(options) {}
  std::string_view name() const override { return "adamw"; }

  std::string labels(std::span<const Spec>) const override {
    std::string outputs;
    for (size_t i = 0; i < units_.size(); ++i) {
      for (size_t state = 0; state < state_count(units_[i]); ++state) {
        outputs += fmt::format("{}+= f{}", outputs.empty() ? "" : ", ", i);
      }
    }
    return "u!, u!, u!, " + repeated("f@", units_.size()) + " -> " + outputs;
  }
  /// Returns a rule in which each unit's states have the distribution of its gradient, which must
  /// not be partial. The scale, the rate and the step are the same on all ranks.
  HandRule hand_rule() const override {
    return [this](Axis, std::span<const TypeOnAxis> inputs) {
      std::vector<TypeOnAxis> outputs;
      for (size_t i = 0; i < kStepInputs; ++i) {
        if (!inputs[i].split() && inputs[i].placement != Placement::partial) continue;
        throw DistributionError(fmt::format(
            "adamw: input {} is {}; expected one number for all ranks", i, inputs[i].text()));
      }
      for (size_t i = 0; i < units_.size(); ++i) {
        const TypeOnAxis& gradient = inputs[kStepInputs + i];
        if (gradient.placement == Placement::partial) {
          throw DistributionError(
              fmt::format("adamw: the gradient of unit {} is partial; expected its sum taken", i));
        }
        outputs.insert(outputs.end(), state_count(units_[i]), gradient);
      }
      return outputs;
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (size_t i = 0; i < kStepInputs; ++i) {
      TESSERA_EXPECT(*this, is_like(inputs[i], {{1}, DType::f64}),
                     "input {} is {}; f64 [1] is expected", i, text_of(inputs[i]));
    }
    for (const UnitInputs& unit : units_) {
      const Spec& gradient = inputs[unit.gradient];
      for (size_t i = 1; i < 4; ++i) {
        TESSERA_EXPECT(*this, is_like(inputs[unit.gradient + i], gradient),
                       "states of {} with a gradient {}", inputs[unit.gradient + i].shape.text(),
                       gradient.shape.text());
      }
      TESSERA_EXPECT(*this,
                     !unit.has_rounded_weight ||
                         is_like(inputs[unit.gradient + 4], {gradient.shape, DType::bf16}),
                     "a weight {} with a gradient {}", inputs[unit.gradient + 4].shape.text(),
                     gradient.shape.text());
    }
    require_separate_sections();
    return {};
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    double bytes = 0;
    for (const UnitInputs& unit : units_) {
      // One read of the gradient, and a read and a write of each moment and of the master.
      bytes += 7 * static_cast<double>(inputs[unit.gradient].bytes());
      if (unit.has_rounded_weight) bytes += static_cast<double>(inputs[unit.gradient + 4].bytes());
    }
    return {.bytes = bytes};
  }

  std::vector<int> updated_inputs() const override {
    std::vector<int> updated;
    for (const UnitInputs& unit : units_) {
      for (size_t i = 1; i <= state_count(unit); ++i) {
        updated.push_back(static_cast<int>(unit.gradient + i));
      }
    }
    return updated;
  }

  /// Returns the bytes of the table of the sections and of the coefficients, on a device.
  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    if (target.device == Device::cpu) return 0;
    return table_bytes<AdamWRow>(sections_.size()) +
           AdamWFactors::kCoefficients * dtype_size(DType::f32);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    if (std::isnan(*execution.inputs[0].data<double>())) return;
    pieces_.for_each(execution.runtime.threads(),
                     [&](int64_t, size_t index, int64_t begin, int64_t end) {
                       const AdamWSection& section = sections_[index];
                       const UnitInputs& unit = units_[static_cast<size_t>(section.section.unit)];
                       if (execution.inputs[unit.gradient].dtype() == DType::f64) {
                         update_piece<double, double>(execution, unit, section, begin, end);
                       } else if (unit.has_rounded_weight) {
                         update_piece<float, BFloat16>(execution, unit, section, begin, end);
                       } else {
                         update_piece<float, float>(execution, unit, section, begin, end);
                       }
                     });
  }

 private:
  /// Throws InternalError if two sections have the same elements, which would be updated twice.
  void require_separate_sections() const {
    std::vector<Section> sections = plain_sections(sections_);
    std::ranges::sort(sections, {}, [](const Section& of) { return std::pair(of.unit, of.begin); });
    for (size_t i = 1; i < sections.size(); ++i) {
      const Section &before = sections[i - 1], &next = sections[i];
      TESSERA_EXPECT(*this, before.unit != next.unit || before.end <= next.begin,
                     "elements {} to {} of unit {} are in two sections", next.begin,
                     std::min(before.end, next.end), next.unit);
    }
  }

  void run_on_device(const Execution& execution) const {
    if (sections_.empty()) return;  // other ranks have all sections
    std::vector<AdamWRow> rows;
    for (const auto& [section, decays] : sections_) {
      const UnitInputs& unit = units_[static_cast<size_t>(section.unit)];
      const Tensor* const unit_inputs = &execution.inputs[unit.gradient];
      rows.push_back({.count = section.end - section.begin,
                      .decays = decays ? 1 : 0,
                      .gradient = unit_inputs[0].pointer<float>() + section.begin,
                      .first_moment = unit_inputs[1].pointer<float>() + section.begin,
                      .second_moment = unit_inputs[2].pointer<float>() + section.begin,
                      .master = unit_inputs[3].pointer<float>() + section.begin,
                      .weight = unit.has_rounded_weight
                                    ? unit_inputs[4].pointer<BFloat16>() + section.begin
                                    : nullptr});
    }
    const AdamWFactors factors{
        .scale = execution.inputs[0].pointer<double>(),
        .learning_rate = execution.inputs[1].pointer<double>(),
        .step = execution.inputs[2].pointer<double>(),
        .beta1 = options_.beta1,
        .beta2 = options_.beta2,
        .epsilon = options_.epsilon,
        .weight_decay = options_.weight_decay,
        .coefficients = reinterpret_cast<float*>(execution.workspace.data() +
                                                 table_bytes<AdamWRow>(rows.size()))};
    const DeviceTable<AdamWRow> table = put_table(execution, std::move(rows));
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      adamw_device<Vendor>(factors, table, *execution.stream);
    });
  }

  template <typename Wide, typename Weight>
  void update_piece(const Execution& execution, const UnitInputs& unit, const AdamWSection& section,
                    int64_t begin, int64_t end) const {
    const Tensor* const unit_inputs = &execution.inputs[unit.gradient];
    update(coefficients<Wide>(execution, section.decays), begin, end, unit_inputs[0].data<Wide>(),
           unit_inputs[1].data<Wide>(), unit_inputs[2].data<Wide>(), unit_inputs[3].data<Wide>(),
           unit_inputs[unit.has_rounded_weight ? 4 : 3].data<Weight>());
  }

  template <typename Wide>
  Coefficients<Wide> coefficients(const Execution& execution, bool decays) const {
    const double scale = *execution.inputs[0].data<double>();
    const double rate = *execution.inputs[1].data<double>();
    const double t = *execution.inputs[2].data<double>();
    const double decayed = decays ? rate * options_.weight_decay : 0.0;
    return {.beta1 = static_cast<Wide>(options_.beta1),
            .beta2 = static_cast<Wide>(options_.beta2),
            .epsilon = static_cast<Wide>(options_.epsilon),
            .keep = static_cast<Wide>(1.0 - decayed),
            .step_size = static_cast<Wide>(rate / (1.0 - std::pow(options_.beta1, t))),
            .inverse_correction2 = static_cast<Wide>(1.0 / (1.0 - std::pow(options_.beta2, t))),
            .scale = static_cast<Wide>(scale)};
  }

  std::vector<UnitInputs> units_;
  std::vector<AdamWSection> sections_;
  SectionPieces pieces_;
  AdamWOptions options_;
};

}  // namespace

void adamw(Builder& builder, const AdamWInputs& inputs, std::span<const AdamWUnit> units,
           std::vector<AdamWSection> sections, const AdamWOptions& options) {
  std::vector<Value> values{inputs.scale, inputs.learning_rate, inputs.step};
  std::vector<UnitInputs> unit_inputs;
  for (const AdamWUnit& unit : units) {
    unit_inputs.push_back({values.size(), unit.weight.has_value()});
    values.insert(values.end(),
                  {unit.gradient, unit.first_moment, unit.second_moment, unit.master});
    if (unit.weight) values.push_back(*unit.weight);
  }
  builder.apply(std::make_shared<AdamW>(std::move(unit_inputs), std::move(sections), options),
                std::move(values));
}

}  // namespace tessera
