#include "program/labelled_operation.h"

#include <algorithm>

#include <fmt/format.h>

namespace tessera {

bool is_whole_dim(const std::vector<Label>& dim) { return dim.size() == 1 || dim[0].opaque; }

void LabelledOperation::check_labels() const {
  TESSERA_CHECK(inputs.size() == labels.inputs.size(), "{} has {} operands and labels for {}", name,
                inputs.size(), labels.inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    TESSERA_CHECK(static_cast<int>(labels.inputs[k].dims.size()) == inputs[k].spec.shape.rank(),
                  "{}: '{}' {} has labels for {} dims", name, inputs[k].name,
                  inputs[k].spec.shape.text(), labels.inputs[k].dims.size());
  }
}

const Label& LabelledOperation::split_label(size_t input, const TypeOnAxis& split) const {
  const auto& dims = labels.inputs[input].dims;
  TESSERA_CHECK(split.dim < static_cast<int>(dims.size()), "{}: '{}' is split along dim {} of {}",
                name, inputs[input].name, split.dim, dims.size());
  const auto& dim = dims[static_cast<size_t>(split.dim)];
  if (is_whole_dim(dim)) return dim[0];
  TESSERA_CHECK(split.factor < static_cast<int>(dim.size()), "{}: '{}' is split by factor {} of {}",
                name, inputs[input].name, split.factor, dim.size());
  return dim[static_cast<size_t>(split.factor)];
}

std::optional<LabelIndex> LabelledOperation::find_label(const LabelledOperand& operand,
                                                        std::string_view label) const {
  const std::string_view wanted = labels.tied(label);
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    for (size_t f = 0; f < operand.dims[d].size(); ++f) {
      if (labels.tied(operand.dims[d][f].name) == wanted) {
        return LabelIndex{static_cast<int>(d), static_cast<int>(f)};
      }
    }
  }
  return std::nullopt;
}

bool LabelledOperation::an_output_has_label(std::string_view label) const {
  return std::ranges::any_of(
      labels.outputs, [&](const LabelledOperand& output) { return has_label(output, label); });
}

int64_t LabelledOperation::extent(const std::string& label) const {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const auto& dims = labels.inputs[k].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() == 1 && dims[d][0].name == label) {
        return inputs[k].spec.shape[static_cast<int>(d)];
      }
    }
  }
  throw DistributionError(fmt::format("{}: the extent of {} is known of no operand", name, label));
}

bool LabelledOperation::same_on_all(size_t input, const TypeOnAxis& type) const {
  return !inputs[input].differentiable && type.same_on_ranks();
}

}  // namespace tessera
