#include "program/label_rules.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/text.h"
#include "program/derive.h"

namespace tessera {
namespace {

/// Calls function(label) for each label by which a dim can be split. If the label of a dim's first
/// factor stands for the whole dim, the labels of the other factors are skipped.
template <typename Function>
void for_each_splittable(const LabelledOperand& operand, Function function) {
  for (const std::vector<Label>& dim : operand.dims) {
    const size_t factors = dim[0].opaque ? 1 : dim.size();
    for (size_t factor = 0; factor < factors; ++factor) function(dim[factor]);
  }
}

bool has_label(const Labels& labels, const LabelledOperand& operand, std::string_view tied) {
  return std::ranges::any_of(operand.dims, [&](const std::vector<Label>& dim) {
    return std::ranges::any_of(dim,
                               [&](const Label& label) { return labels.tied(label.name) == tied; });
  });
}

bool is_whole_in_an_input(const Labels& labels, std::string_view tied) {
  bool whole = false;
  for (const LabelledOperand& input : labels.inputs) {
    for_each_splittable(input, [&](const Label& label) {
      whole = whole || (label.whole && labels.tied(label.name) == tied);
    });
  }
  return whole;
}

/// Returns whether every term has the label. Otherwise a sum over the label is refused, because
/// each rank would add the terms that lack it.
bool every_term_has(const Labels& labels, std::string_view tied) {
  return std::ranges::all_of(labels.terms, [&](const std::vector<int>& term) {
    return std::ranges::any_of(term, [&](int input) {
      return has_label(labels, labels.inputs[static_cast<size_t>(input)], tied);
    });
  });
}

SplitEffect effect_of_split(const Labels& labels, std::string_view tied) {
  if (is_whole_in_an_input(labels, tied)) return SplitEffect::refused;
  const auto has_tied = [&](const LabelledOperand& output) {
    return has_label(labels, output, tied);
  };
  if (std::ranges::all_of(labels.outputs, has_tied)) return SplitEffect::stays;
  return every_term_has(labels, tied) ? SplitEffect::summed : SplitEffect::refused;
}

std::string dims_text(const std::vector<DimRule>& rules, SplitEffect effect) {
  std::vector<std::string> dims;
  for (const DimRule& rule : rules) {
    if (rule.effect == effect) dims.push_back(join(rule.labels, " = "));
  }
  return join(dims, ", ");
}

/// Returns the operands, counted from 1, in which the operation is linear: "1 or 2, with 3 or 4".
/// One of each term may be partial. Returns an empty text if a term has no such operand.
std::string sums_text(const Labels& labels) {
  std::vector<std::string> terms;
  for (const std::vector<int>& term : labels.terms) {
    std::vector<std::string> linear;
    for (const int input : term) {
      if (labels.inputs[static_cast<size_t>(input)].linear) {
        linear.push_back(std::to_string(input + 1));
      }
    }
    if (linear.empty()) return "";  // each rank would add this term
    terms.push_back(join(linear, " or "));
  }
  return join(terms, ", with ");
}

}  // namespace

std::vector<DimRule> dim_rules(const Labels& labels) {
  std::vector<DimRule> rules;
  std::vector<std::string> seen_labels;
  for (const LabelledOperand& input : labels.inputs) {
    for_each_splittable(input, [&](const Label& label) {
      const std::string tied(labels.tied(label.name));
      if (std::ranges::find(seen_labels, tied) != seen_labels.end()) return;
      const auto has_tied = [&](const LabelledOperand& output) {
        return has_label(labels, output, tied);
      };
      if (input.shape_only && std::ranges::none_of(labels.outputs, has_tied)) return;
      seen_labels.push_back(tied);
      const auto tie = std::ranges::find_if(
          labels.ties, [&](const std::vector<std::string>& names) { return names[0] == tied; });
      rules.push_back(
          {tie == labels.ties.end() ? std::vector{tied} : *tie, effect_of_split(labels, tied)});
    });
  }
  return rules;
}

std::string in_words(const Labels& labels) {
  const std::vector<DimRule> rules = dim_rules(labels);
  std::vector<std::string> sentences;
  const auto add = [&](SplitEffect effect, std::string_view rule) {
    const std::string dims = dims_text(rules, effect);
    if (!dims.empty()) sentences.push_back(fmt::format("{}: {}", rule, dims));
  };
  add(SplitEffect::stays, "split stays");
  add(SplitEffect::summed, "split leaves a sum");
  add(SplitEffect::refused, "whole");
  const std::string sums = sums_text(labels);
  if (!sums.empty()) sentences.push_back("may be a sum: operand " + sums);
  return join(sentences, "; ");
}

bool labels_decide(const Program& program, const Node& node) {
  if (node.operation->hand_rule() || node.operation->lane() != Lane::compute) return false;
  std::vector<TypedOperand> operands;
  for (const Value input : node.inputs) {
    const ValueInfo& info = program.info(input);
    operands.push_back({info.name, info.spec, info.differentiable});
  }
  return !node.operation->distributions(program.mesh(), operands).has_value();
}

}  // namespace tessera
