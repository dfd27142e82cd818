#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "program/derive.h"
#include "support/operation_run.h"
#include "support/split_labels.h"

namespace tessera::testing {

/// Tries what the labels of an operation claim, with two ranks. Each claim is a set of types of the
/// operands: a label that is split, or operands that are partial. The types of the outputs follow
/// from the labels as the Builder derives them, or from the rule by hand. Then the plain kernel
/// runs on the whole and on what each rank has, and the results must be related as their types say:
/// sharded ones are parts of the whole's, partial ones are its addends, all others are equal to it.
class LabelCheck {
 public:
  /// With `labels`, the operation is taken to have these instead of its own.
  explicit LabelCheck(const LabelCase& of, const std::string& labels = {})
      : case_(of), all_(of.extents), whole_(make_operation(of, all_)) {
    own_text_ = whole_.operation->labels(whole_.inputs);
    labels_ = SplitLabels(parse_labels(labels.empty() ? own_text_ : labels));
    updated_ = whole_.operation->updated_inputs();
    for (size_t i = 0; i < whole_.inputs.size(); ++i) inputs_.push_back(draw(i, all_));
    expected_ = run(whole_, inputs_);
  }

  const std::string& own_text() const { return own_text_; }

  /// What is wrong with the labels; empty if they are right. It splits every label that is not
  /// whole, in halves, unevenly and in zigzag, and makes operands partial, in every way that the
  /// labels allow. An operand in which the operation is not linear has to be refused as a partial
  /// one.
  std::vector<std::string> wrong() {
    wrong_.clear();
    require_numbers();
    std::set<std::string> split = labels_.classes(false);
    split.merge(labels_.written());
    for (const std::string& label : split) {
      const auto cuts = labels_.cuts(label, all_, case_.single);
      if (cuts.empty()) wrong_.push_back(label + " has too few elements to be split");
      for (const int64_t cut : cuts) note(split_fault(label, halves(label, cut)));
      note(zigzag_fault(label));
    }
    for (const auto& sums : labels_.choices_of_sums()) note(sum_fault(sums, true));
    for (size_t k = 0; k < labels_.inputs.size(); ++k) {
      if (!labels_.inputs[k].linear && !labels_.inputs[k].shape_only) note(sum_fault({k}, false));
    }
    if (!labels_.written().empty()) note(sum_fault({}, true));
    return wrong_;
  }

  /// Claims that the labels do not make but could: whole labels that may be split, and operands in
  /// which the operation is linear.
  std::vector<std::string> could_claim() {
    std::vector<std::string> result;
    const SplitLabels own = labels_;
    for (const std::string& label : labels_.classes(true)) {
      if (case_.indexed.contains(label) || !all_.has(label)) continue;
      const auto cuts = labels_.cuts(label, all_, case_.single);
      labels_.unmark(label);
      const auto is_wrong = [&](int64_t cut) {
        return split_fault(label, halves(label, cut)).has_value();
      };
      if (!cuts.empty() && std::ranges::none_of(cuts, is_wrong)) {
        result.push_back(label + " need not be whole");
      }
      labels_ = own;
    }
    for (size_t k = 0; k < labels_.inputs.size() && labels_.terms.size() == 1; ++k) {
      if (labels_.inputs[k].linear || labels_.inputs[k].shape_only || !is_drawn(k)) continue;
      labels_.inputs[k].linear = true;
      if (!sum_fault({k}, true)) result.push_back(fmt::format("operand {} is linear", k));
      labels_ = own;
    }
    return result;
  }

  /// The labels whose pieces in zigzag are refused, because they may cut an element.
  std::set<std::string> refused_in_zigzag() const {
    std::set<std::string> refused;
    for (const std::string& label : labels_.classes(false)) {
      if (refuses_zigzag(label)) refused.insert(label);
    }
    return refused;
  }

 private:
  using Fault = std::optional<std::string>;
  using Types = std::vector<TypeOnAxis>;

  /// What one of the two ranks has.
  struct Rank {
    LabelRanges ranges;
    std::vector<Tensor> inputs;
  };

  void note(const Fault& fault) {
    if (fault) wrong_.push_back(*fault);
  }

  // ---- operands

  /// The number among the updated inputs, or none for an input that is only read.
  std::optional<size_t> updated(size_t input) const {
    const auto found = std::ranges::find(updated_, static_cast<int>(input));
    if (found == updated_.end()) return std::nullopt;
    return static_cast<size_t>(found - updated_.begin());
  }
  size_t outputs() const { return labels_.outputs.size() - updated_.size(); }

  /// The labels of each of the node's inputs.
  std::vector<const LabelledOperand*> labelled() const {
    std::vector<const LabelledOperand*> result;
    size_t read = 0;
    for (size_t i = 0; i < whole_.inputs.size(); ++i) {
      const auto place = updated(i);
      result.push_back(place ? &labels_.outputs[outputs() + *place] : &labels_.inputs[read++]);
    }
    return result;
  }

  Tensor draw(size_t input, const LabelRanges& ranges) const {
    const Spec& spec = whole_.inputs[input];
    if (const auto given = case_.given.find(input); given != case_.given.end()) {
      const std::vector<int32_t> values = given->second.values(ranges);
      const Tensor tensor({std::ssize(values)}, DType::i32);
      std::ranges::copy(values, tensor.data<int32_t>());
      return given->second.local ? tensor : tensor.reshape(spec.shape);
    }
    TESSERA_CHECK(is_floating(spec.dtype), "{}: input {} is not given", case_.operation, input);
    return drawn(spec, fmt::format("{} {}", case_.operation, input),
                 case_.positive.contains(input));
  }
  bool is_local(size_t input) const {
    const auto given = case_.given.find(input);
    return given != case_.given.end() && given->second.local;
  }

  /// Whether operand k of the labels is an input of random numbers.
  bool is_drawn(size_t k) const {
    size_t read = 0;
    for (size_t i = 0; i < whole_.inputs.size(); ++i) {
      if (!updated(i) && read++ == k) return is_floating(whole_.inputs[i].dtype);
    }
    return false;
  }

  /// The outputs of a run, and after them the inputs that it updated. Given inputs stay as they
  /// are.
  std::vector<Tensor> run(const MadeOperation& made, const std::vector<Tensor>& inputs) const {
    std::vector<Tensor> own;
    for (const Tensor& input : inputs) own.push_back(copy_of(input));
    std::vector<Tensor> results = run_plain(made, own);
    for (const int input : updated_) results.push_back(own[static_cast<size_t>(input)]);
    return results;
  }

  /// Results that are all zeros would be any sum and any part.
  void require_numbers() {
    for (size_t i = 0; i < expected_.size(); ++i) {
      if (!is_floating(expected_[i].dtype()) || labels_.outputs[i].shape_only) continue;
      const std::vector<double> numbers = numbers_of(expected_[i]);
      if (std::ranges::all_of(numbers, [](double number) { return number == 0; })) {
        wrong_.push_back(fmt::format("result {} is all zeros: nothing is shown", i));
      }
    }
  }

  // ---- types

  /// The types of the results. Throws DistributionError if the labels or the rule by hand refuse.
  Types derived(const Types& types) const {
    static const Mesh mesh({.tensor = 2});
    std::vector<TypedOperand> operands;
    for (size_t i = 0; i < whole_.inputs.size(); ++i) {
      if (updated(i)) continue;
      operands.push_back(
          {fmt::format("input {}", i), whole_.inputs[i], is_floating(whole_.inputs[i].dtype)});
    }
    for (const Spec& spec : whole_.operation->shape_operands()) {
      operands.push_back({"shape", spec, false});
    }
    TESSERA_CHECK(operands.size() == types.size(), "labels of {} operands for {}", types.size(),
                  operands.size());
    for (size_t k = 0; k < operands.size(); ++k) {
      operands[k].spec.distribution = Distribution().with(mesh.tensor(), types[k]);
    }
    Types result;
    for (const Distribution& distribution : derive_distributions(
             mesh, case_.operation, labels_, operands, whole_.operation->hand_rule())) {
      result.push_back(distribution.on(mesh.tensor()));
    }
    return result;
  }

  // ---- claims

  /// How two ranks split a class of labels: the runs of its units that each of them has.
  struct Cut {
    std::string text;
    PieceKind kind = PieceKind::even;
    std::array<LabelRanges::Runs, 2> runs;
  };

  /// After `cut` units.
  Cut halves(const std::string& label, int64_t cut) const {
    const int64_t units = labels_.units(label, all_);
    return {fmt::format("{} split {} : {}", label, cut, units - cut),
            PieceKind::even,
            {LabelRanges::Runs{{0, cut}}, LabelRanges::Runs{{cut, units}}}};
  }

  /// The first units and the last, and those between. Zigzag pieces have gaps like these.
  Cut outside_and_inside(const std::string& label) const {
    const int64_t units = labels_.units(label, all_);
    const int64_t edge = std::max<int64_t>(1, units / 4);
    return {fmt::format("{} split {} : {} : {}", label, edge, units - 2 * edge, edge),
            PieceKind::zigzag,
            {LabelRanges::Runs{{0, edge}, {units - edge, units}},
             LabelRanges::Runs{{edge, units - edge}}}};
  }

  Types types_of(const std::string& label, PieceKind kind) const {
    Types types;
    for (const LabelledOperand& operand : labels_.inputs) {
      types.push_back(labels_.typed(operand, label, all_, kind));
    }
    return types;
  }

  bool refuses_zigzag(const std::string& label) const {
    try {
      derived(types_of(label, PieceKind::zigzag));
    } catch (const DistributionError& error) {
      return std::string_view(error.what()).find("may cut an element") != std::string_view::npos;
    }
    return false;
  }

  /// What is wrong if a class of labels is split in zigzag. It has to be refused where pieces may
  /// cut an element of a label, and only there. Rules by hand may refuse it too, and so may
  /// operations that are made for consecutive elements.
  Fault zigzag_fault(const std::string& label) const {
    if (labels_.units(label, all_) < 3) return std::nullopt;
    if (refuses_zigzag(label)) {
      if (labels_.has_others_inside(label)) return std::nullopt;
      return label + " in zigzag is refused, and no label lies inside it";
    }
    try {
      return split_fault(label, outside_and_inside(label));
    } catch (const NotConsecutive&) {
      return std::nullopt;
    }
  }

  /// What is wrong if a class of labels is split like this.
  Fault split_fault(const std::string& label, const Cut& cut) const {
    const std::string& what = cut.text;
    try {
      const Types types = types_of(label, cut.kind);
      Types results = derived(types);
      for (size_t i = 0; i < results.size(); ++i) {
        const TypeOnAxis own = labels_.typed(labels_.outputs[i], label, all_, cut.kind);
        if (labels_.outputs[i].shape_only) results[i] = own;
        if (results[i].split() && results[i] != own) {
          return fmt::format("{}: result {} is {} with {} repeats, not {} with {}", what, i,
                             results[i].text(), results[i].repeats, own.text(), own.repeats);
        }
      }
      std::vector<Rank> ranks{{all_, {}}, {all_, {}}};
      for (const std::string& member : labels_.members(label)) {
        const int64_t unit = all_(member) / labels_.units(label, all_);
        for (size_t rank = 0; rank < 2; ++rank) {
          LabelRanges::Runs runs = cut.runs[rank];
          for (auto& [begin, end] : runs) {
            begin *= unit;
            end *= unit;
          }
          ranks[rank].ranges = ranks[rank].ranges.with(member, std::move(runs));
        }
      }
      return compare(what, label, types, results, ranks);
    } catch (const NotConsecutive&) {
      throw;
    } catch (const InternalError& error) {
      return fmt::format("{}: {}", what, error.what());
    }
  }

  /// What is wrong if these operands are partial. If that is no claim, it may be refused.
  Fault sum_fault(const std::vector<size_t>& sums, bool claimed) const {
    std::string what = "partial:";
    for (const size_t k : sums) what += fmt::format(" operand {}", k);
    Types types(labels_.inputs.size(), replicated());
    for (const size_t k : sums) types[k] = partial();
    Types results;
    try {
      results = derived(types);
    } catch (const DistributionError& error) {
      return claimed ? Fault(fmt::format("{}: {}", what, error.what())) : std::nullopt;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (labels_.outputs[i].shape_only) results[i] = partial();
    }
    std::vector<Rank> ranks{{all_, {}}, {all_, {}}};
    return compare(what, {}, types, results, ranks);
  }

  // ---- two ranks

  Fault compare(const std::string& what, const std::string& split, const Types& types,
                const Types& results, std::vector<Rank>& ranks) const {
    std::vector<std::vector<Tensor>> made;
    for (size_t r = 0; r < 2; ++r) {
      Rank& rank = ranks[r];
      const MadeOperation own = make_operation(case_, rank.ranges);
      if (own.operation->labels(own.inputs) != own_text_) {
        return fmt::format("{}: rank {} has the labels \"{}\"", what, r,
                           own.operation->labels(own.inputs));
      }
      fill(rank, r, split, types, results);
      for (size_t i = 0; i < own.inputs.size(); ++i) {
        if (own.inputs[i].shape == rank.inputs[i].shape()) continue;
        return fmt::format("{}: input {} is {} where {} is expected", what, i,
                           rank.inputs[i].shape().text(), own.inputs[i].shape.text());
      }
      made.push_back(run(own, rank.inputs));
    }
    for (size_t i = 0; i < expected_.size(); ++i) {
      if (const Fault fault = differ(split, results[i], i, made, ranks)) {
        return fmt::format("{}: result {}, which is {}: {}", what, i, results[i].text(), *fault);
      }
    }
    return std::nullopt;
  }

  /// Gives a rank its inputs.
  void fill(Rank& rank, size_t number, const std::string& split, const Types& types,
            const Types& results) const {
    const auto operands = labelled();
    size_t read = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto place = updated(i);
      const TypeOnAxis& type = place ? results[outputs() + *place] : types[read++];
      if (!split.empty() && is_local(i)) {
        rank.inputs.push_back(draw(i, rank.ranges));
      } else if (type.placement == Placement::partial) {
        rank.inputs.push_back(place ? in_one_rank(inputs_[i], number)
                                    : addend(inputs_[i], i, number));
      } else {
        rank.inputs.push_back(part(inputs_[i], *operands[i], type, split, rank.ranges));
      }
    }
  }

  Tensor part(const Tensor& whole, const LabelledOperand& operand, const TypeOnAxis& type,
              const std::string& split, const LabelRanges& ranges) const {
    if (!type.split()) return whole;
    return part_of(whole, factors_of(labels_, operand, whole.shape(), all_, split, ranges));
  }

  /// What is added into: one rank has it, and the other has zeros.
  static Tensor in_one_rank(const Tensor& whole, size_t rank) {
    const Tensor result = copy_of(whole);
    if (rank > 0) result.fill_zero();
    return result;
  }

  /// One of two addends of an input, drawn anew.
  Tensor addend(const Tensor& whole, size_t input, size_t rank) const {
    const Tensor result = copy_of(whole);
    if (whole.dtype() == DType::i32) {
      for (int32_t& value : result.values<int32_t>()) value = rank == 0 ? 7 : value - 7;
      return result;
    }
    const Tensor first = drawn({whole.shape(), DType::f64}, fmt::format("addend {}", input));
    const Tensor wide(whole.shape(), DType::f64);
    convert(whole, wide);
    for (int64_t i = 0; i < wide.elements(); ++i) {
      double& value = wide.data<double>()[i];
      value = rank == 0 ? first.data<double>()[i] : value - first.data<double>()[i];
    }
    convert(wide, result);
    return result;
  }

  /// How a result of the ranks differs from what its type says.
  Fault differ(const std::string& split, const TypeOnAxis& type, size_t result,
               const std::vector<std::vector<Tensor>>& made, const std::vector<Rank>& ranks) const {
    const Tensor& whole = expected_[result];
    if (type.placement == Placement::partial) {
      std::vector<double> sum = numbers_of(made[0][result]);
      const std::vector<double> other = numbers_of(made[1][result]);
      if (sum.size() != other.size()) return "the addends differ in their shapes";
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      return unequal(sum, numbers_of(whole), tolerance());
    }
    for (size_t r = 0; r < 2; ++r) {
      const Tensor own = part(whole, labels_.outputs[result], type, split, ranks[r].ranges);
      if (own.shape() != made[r][result].shape()) {
        return fmt::format("rank {} has {}, not {}", r, made[r][result].shape().text(),
                           own.shape().text());
      }
      if (auto fault = unequal(numbers_of(made[r][result]), numbers_of(own), tolerance())) {
        return fmt::format("rank {}: {}", r, *fault);
      }
    }
    return std::nullopt;
  }

  /// Of the widest rounding among the operands: 1e-10 in f64, 1e-5 otherwise.
  double tolerance() const {
    const auto narrow = [](const Tensor& tensor) {
      return tensor.dtype() == DType::f32 || tensor.dtype() == DType::bf16;
    };
    return std::ranges::any_of(inputs_, narrow) || std::ranges::any_of(expected_, narrow) ? 1e-5
                                                                                          : 1e-10;
  }

  static Fault unequal(const std::vector<double>& actual, const std::vector<double>& expected,
                       double tolerance) {
    if (actual.size() != expected.size()) return "another number of elements";
    double largest = 1;
    for (const double number : expected) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < actual.size(); ++i) {
      if (std::abs(actual[i] - expected[i]) <= tolerance * largest) continue;
      return fmt::format("element {} is {}, not {}", i, actual[i], expected[i]);
    }
    return std::nullopt;
  }

  const LabelCase& case_;
  LabelRanges all_;
  MadeOperation whole_;
  std::string own_text_;
  SplitLabels labels_;
  std::vector<int> updated_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> expected_;
  std::vector<std::string> wrong_;
};

}  // namespace tessera::testing
