// The defaults of Operation: the cost follows from the labels, there is no gradient, recomputation
// applies the operation again, and outputs have memory of their own.

#include "program/operation.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "program/builder.h"

namespace tessera {
namespace {

using Names = std::set<std::string>;

Names names_of(const LabelledOperand& operand) {
  Names names;
  for (const auto& dim : operand.dims) {
    for (const Label& label : dim) names.insert(label.name);
  }
  return names;
}

/// Returns whether some output has both a label that only `a` has and one that only `b` has.
bool spans_output(std::span<const LabelledOperand> outputs, const Names& a, const Names& b) {
  return std::ranges::any_of(outputs, [&](const LabelledOperand& output) {
    const Names names = names_of(output);
    const auto has_name_of_first_alone = [&](const Names& first, const Names& second) {
      return std::ranges::any_of(
          names, [&](const auto& name) { return first.contains(name) && !second.contains(name); });
    };
    return has_name_of_first_alone(a, b) && has_name_of_first_alone(b, a);
  });
}

/// Returns whether two inputs form a product, as matrix_products() defines it.
bool is_product(const Labels& labels, int first, int second) {
  const Names a = names_of(labels.inputs[static_cast<size_t>(first)]);
  const Names b = names_of(labels.inputs[static_cast<size_t>(second)]);
  const bool share_summed_label = std::ranges::any_of(a, [&](const std::string& name) {
    return b.contains(name) && std::ranges::none_of(labels.outputs, [&](const auto& output) {
             return names_of(output).contains(name);
           });
  });
  return share_summed_label && spans_output(labels.outputs, a, b);
}

/// Returns the product of two inputs. Each label counts once: as a row, a column, a term, or as the
/// number of products.
MatrixProduct product_of(const Labels& labels, std::span<const Shape> operands, int first,
                         int second) {
  const std::array<Names, 2> names{names_of(labels.inputs[static_cast<size_t>(first)]),
                                   names_of(labels.inputs[static_cast<size_t>(second)])};
  const auto is_summed = [&](const std::string& name) {
    return std::ranges::none_of(
        labels.outputs, [&](const auto& output) { return names_of(output).contains(name); });
  };
  MatrixProduct product;
  Names counted;
  // Dims of several factors come first, so that their labels are not counted again one by one.
  for (const bool with_factors : {true, false}) {
    for (const size_t k : {size_t{0}, size_t{1}}) {
      const int operand = k == 0 ? first : second;
      const auto& dims = labels.inputs[static_cast<size_t>(operand)].dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        const bool is_alone = std::ranges::any_of(
            dims[d], [&](const Label& label) { return !names[1 - k].contains(label.name); });
        const bool is_term = !is_alone && is_summed(dims[d][0].name);
        if (is_term) (k == 0 ? product.first_ends : product.second_ends) = d + 1 == dims.size();
        if ((dims[d].size() > 1) != with_factors || counted.contains(dims[d][0].name)) continue;
        for (const Label& label : dims[d]) counted.insert(label.name);
        const auto extent = operands[static_cast<size_t>(operand)][static_cast<int>(d)];
        double& side = is_alone  ? (k == 0 ? product.rows : product.columns)
                       : is_term ? product.terms
                                 : product.count;
        side *= static_cast<double>(extent);
      }
    }
  }
  return product;
}

}  // namespace

std::vector<MatrixProduct> matrix_products(const Labels& labels, std::span<const Shape> operands) {
  std::vector<MatrixProduct> products;
  for (const std::vector<int>& term : labels.terms) {
    for (size_t i = 0; i < term.size(); ++i) {
      for (size_t j = i + 1; j < term.size(); ++j) {
        const bool have_shapes = std::max(term[i], term[j]) < static_cast<int>(operands.size());
        if (!have_shapes || !is_product(labels, term[i], term[j])) continue;
        products.push_back(product_of(labels, operands, term[i], term[j]));
      }
    }
  }
  return products;
}

double operand_bytes(std::span<const Spec> inputs, std::span<const Spec> outputs,
                     std::span<const int> updated) {
  double bytes = 0;
  for (const Spec& spec : inputs) bytes += static_cast<double>(spec.bytes());
  for (const Spec& spec : outputs) bytes += static_cast<double>(spec.bytes());
  for (const int input : updated) {
    bytes += static_cast<double>(inputs[static_cast<size_t>(input)].bytes());
  }
  return bytes;
}

Communicator& Execution::group() const {
  TESSERA_CHECK(groups.size() == 1, "{} meets {} groups of ranks; expected one", name,
                groups.size());
  return *groups.front();
}

CallList& CallListing::group() const {
  TESSERA_CHECK(groups.size() == 1, "{} meets {} groups of ranks; expected one", name,
                groups.size());
  return *groups.front();
}

Cost Operation::cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const {
  const std::vector<int> updated = updated_inputs();
  std::vector<Shape> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::find(updated, static_cast<int>(i)) != updated.end()) continue;
    operands.push_back(inputs[i].shape);
  }
  double flops = 0;
  for (const MatrixProduct& product : matrix_products(parse_labels(labels(inputs)), operands)) {
    flops += product.flops();
  }
  return {.flops = flops, .bytes = operand_bytes(inputs, outputs, updated)};
}

std::vector<Value> Operation::gradient(Builder&, const Node& self, std::span<const Value>) const {
  return std::vector<Value>(self.inputs.size());
}

std::vector<Value> Operation::recompute_inputs(const Node& self, std::span<const Value>) const {
  return self.inputs;
}

std::vector<Value> Operation::recompute(Builder& builder, const Node& self,
                                        std::span<const Value> inputs,
                                        std::span<const Value>) const {
  return builder.apply(self.operation, {inputs.begin(), inputs.end()});
}

}  // namespace tessera
