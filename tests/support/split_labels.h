#pragma once

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/distribution.h"
#include "program/labels.h"
#include "support/label_case.h"

namespace tessera::testing {

/// Labels, and the ways to split them. A class of labels are those that are tied, under the name of
/// the first.
class SplitLabels : public Labels {
 public:
  SplitLabels() = default;
  explicit SplitLabels(Labels labels) : Labels(std::move(labels)) {}

  /// The classes of labels of inputs that are whole somewhere, or of those that are nowhere.
  std::set<std::string> classes(bool whole) const {
    std::set<std::string> all, marked;
    for (const LabelledOperand& operand : inputs) {
      for (const auto& dim : operand.dims) {
        for (const Label& label : dim) {
          all.emplace(tied(label.name));
          if (label.whole) marked.emplace(tied(label.name));
        }
      }
    }
    if (whole) return marked;
    for (const std::string& label : marked) all.erase(label);
    return all;
  }

  /// Labels of operands that are written whatever their type.
  std::set<std::string> written() const {
    std::set<std::string> result;
    for (const LabelledOperand& operand : outputs) {
      if (!operand.shape_only) continue;
      for (const auto& dim : operand.dims) result.emplace(dim[0].name);
    }
    return result;
  }

  /// Takes the mark of whole labels from a class.
  void unmark(const std::string& of) {
    for (auto* operands : {&inputs, &outputs}) {
      for (LabelledOperand& operand : *operands) {
        for (auto& dim : operand.dims) {
          for (Label& label : dim) {
            if (tied(label.name) == of) label.whole = false;
          }
        }
      }
    }
  }

  /// The labels of a class.
  std::vector<std::string> members(const std::string& of) const {
    for (const auto& tie : ties) {
      if (tie.front() == of) return tie;
    }
    return {of};
  }

  /// The units in which a class splits: 6 heads in 3 groups are 3 units.
  int64_t units(const std::string& of, const LabelRanges& extents) const {
    int64_t units = 0;
    for (const std::string& label : members(of)) units = std::gcd(units, extents(label));
    return units;
  }
  /// How many units the first of two ranks gets: half of them, and one, if that may be.
  std::vector<int64_t> cuts(const std::string& of, const LabelRanges& extents, bool single) const {
    const int64_t count = units(of, extents);
    if (count < 2) return {};
    if (count / 2 == 1 || !single) return {count / 2};
    return {count / 2, 1};
  }

  /// Whether a class of labels has others inside it in a dim of an input.
  bool has_others_inside(const std::string& of) const {
    for (const LabelledOperand& operand : inputs) {
      for (const auto& dim : operand.dims) {
        for (size_t f = 0; f + 1 < dim.size(); ++f) {
          if (tied(dim[f].name) == of) return true;
        }
      }
    }
    return false;
  }

  /// What has to be partial at once, as positions: a linear operand of every term, in all ways.
  std::vector<std::vector<size_t>> choices_of_sums() const {
    if (terms.empty()) return {};
    std::vector<std::vector<size_t>> choices{{}};
    for (const auto& term : terms) {
      std::vector<std::vector<size_t>> longer;
      for (const auto& choice : choices) {
        for (const int k : term) {
          if (!inputs[static_cast<size_t>(k)].linear) continue;
          longer.push_back(choice);
          longer.back().push_back(static_cast<size_t>(k));
        }
      }
      choices = longer;
    }
    return choices;
  }

  /// The type of an operand if a class is split: replicated if it has none of its labels.
  TypeOnAxis typed(const LabelledOperand& operand, const std::string& split,
                   const LabelRanges& extents, PieceKind kind = PieceKind::even) const {
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      int64_t repeats = 1;
      for (size_t f = 0; f < operand.dims[d].size(); ++f) {
        const std::string& label = operand.dims[d][f].name;
        if (tied(label) == split) {
          return sharded(static_cast<int>(d), {.kind = kind}, static_cast<int>(f), repeats);
        }
        if (operand.dims[d].size() > 1) repeats *= extents(label);
      }
    }
    return replicated();
  }
};

/// All factors of an operand's dims in order: how many elements the whole has, and which of them
/// the rank has.
struct OperandFactors {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> own;
  std::vector<int64_t> part_dims;
};

inline OperandFactors factors_of(const Labels& labels, const LabelledOperand& operand,
                                 const Shape& whole, const LabelRanges& extents,
                                 std::string_view split, const LabelRanges& part) {
  OperandFactors factors;
  TESSERA_CHECK(std::ssize(operand.dims) == whole.rank(), "labels of {} dims for {}",
                operand.dims.size(), whole.text());
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const auto& dim = operand.dims[d];
    int64_t product = 1;
    int64_t of_part = 1;
    for (const Label& label : dim) {
      TESSERA_CHECK(!label.opaque, "label {} stands for a whole dim", label.name);
      const int64_t extent = dim.size() == 1 ? whole[static_cast<int>(d)] : extents(label.name);
      const bool is_split = labels.tied(label.name) == split;
      TESSERA_CHECK(!is_split || extent == extents(label.name),
                    "label {} has {} elements, and {} in dim {} of {}", label.name,
                    extents(label.name), extent, d, whole.text());
      factors.extents.push_back(extent);
      std::vector<int64_t> own(static_cast<size_t>(extent));
      std::iota(own.begin(), own.end(), int64_t{0});
      if (is_split) own = part.elements(label.name);
      product *= extent;
      of_part *= std::ssize(own);
      factors.own.push_back(std::move(own));
    }
    TESSERA_CHECK(product == whole[static_cast<int>(d)], "dim {} of {} where labels say {}", d,
                  whole.text(), product);
    factors.part_dims.push_back(of_part);
  }
  return factors;
}

/// The part of a whole operand that a rank has if the labels of the class `split` are split.
inline Tensor part_of(const Tensor& whole, const OperandFactors& factors) {
  const Tensor part(Shape(factors.part_dims), whole.dtype());
  const auto bytes = static_cast<size_t>(dtype_size(whole.dtype()));
  std::vector<size_t> at(factors.own.size());
  for (int64_t element = 0; element < part.elements(); ++element) {
    int64_t from = 0;
    for (size_t f = 0; f < at.size(); ++f) from = from * factors.extents[f] + factors.own[f][at[f]];
    std::memcpy(part.raw() + static_cast<size_t>(element) * bytes,
                whole.raw() + static_cast<size_t>(from) * bytes, bytes);
    for (size_t f = at.size(); f-- > 0;) {
      if (++at[f] < factors.own[f].size()) break;
      at[f] = 0;
    }
  }
  return part;
}

}  // namespace tessera::testing
