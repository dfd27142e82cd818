// Looks up labels in the operands of an operation. The main function is pieces_in(): the sizes of
// uneven pieces count elements of a dim, so they change if the label moves to a dim with other
// factors. The extents of these factors come from operands that have them as dims of their own.

#include "program/labelled_operation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/piece_indices.h"

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
  throw DistributionError(fmt::format("{}: no operand gives the extent of {}", name, label));
}

bool LabelledOperation::is_neutral(size_t input, const TypeOnAxis& type) const {
  return !inputs[input].differentiable && type.same_on_ranks();
}

namespace {

/// Returns the index, in a dim, of the label that a split divides.
size_t split_label_index(const std::vector<Label>& dim, const TypeOnAxis& type) {
  return is_whole_dim(dim) ? 0 : static_cast<size_t>(type.factor);
}

/// Returns the extent of a label over all ranks, from an input that has it as a dim of its own.
/// Inputs whose shapes do not fit their pieces, for which logical_extent() throws, are skipped.
std::optional<int64_t> known_extent(const LabelledOperation& operation, std::string_view label) {
  for (size_t k = 0; k < operation.inputs.size(); ++k) {
    const auto& dims = operation.labels.inputs[k].dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() != 1 || dims[d][0].name != label) continue;
      const Spec& spec = operation.inputs[k].spec;
      const int dim = static_cast<int>(d);
      try {
        return logical_extent(operation.mesh, spec.distribution, dim, spec.shape[dim]);
      } catch (const Error&) {
        continue;
      }
    }
  }
  return std::nullopt;
}

/// Returns the product of the labels' extents; none if one is not known.
std::optional<int64_t> known_product(const LabelledOperation& operation,
                                     std::span<const std::string> labels) {
  int64_t product = 1;
  for (const std::string& label : labels) {
    const auto extent = known_extent(operation, label);
    if (!extent) return std::nullopt;
    product *= *extent;
  }
  return product;
}

/// Returns the names of a dim's labels from the index `begin` on.
std::vector<std::string> labels_from(const std::vector<Label>& dim, size_t begin) {
  std::vector<std::string> names;
  for (size_t f = begin; f < dim.size(); ++f) names.push_back(dim[f].name);
  return names;
}

/// Removes from both lists the names that they have in common.
void cancel_common(std::vector<std::string>& dividends, std::vector<std::string>& divisors) {
  for (auto name = dividends.begin(); name != dividends.end();) {
    const auto found = std::ranges::find(divisors, *name);
    if (found == divisors.end()) {
      ++name;
      continue;
    }
    divisors.erase(found);
    name = dividends.erase(name);
  }
}

/// Returns whether another axis splits a factor inside the label before this axis splits the label.
/// The sizes of uneven pieces then count elements of what the other axis left to this rank.
bool inner_factor_split_first(const Distribution& distribution, Axis axis, const TypeOnAxis& type) {
  const std::span<const Axis> order = distribution.order(type.dim);
  return std::any_of(order.begin(), std::ranges::find(order, axis),
                     [&](Axis earlier) { return distribution.on(earlier).factor > type.factor; });
}

}  // namespace

std::optional<Pieces> pieces_in(const LabelledOperation& operation, size_t input, Axis axis,
                                const TypeOnAxis& type, const LabelledOperand& operand,
                                LabelIndex index) {
  if (type.pieces.kind != PieceKind::uneven) return type.pieces;
  const auto& dim = operation.labels.inputs[input].dims[static_cast<size_t>(type.dim)];
  const TypedOperand& value = operation.inputs[input];
  if (!is_whole_dim(dim) && inner_factor_split_first(value.spec.distribution, axis, type))
    return std::nullopt;
  std::vector<std::string> inner = labels_from(dim, split_label_index(dim, type));
  std::vector<std::string> target_inner =
      labels_from(operand.dims[static_cast<size_t>(index.dim)], static_cast<size_t>(index.factor));
  cancel_common(inner, target_inner);
  const auto divisor = known_product(operation, inner);
  const auto multiplier = known_product(operation, target_inner);
  if (!divisor || !multiplier || (*divisor == 0 && *multiplier != 0)) return std::nullopt;
  Pieces pieces = type.pieces;
  if (*divisor == *multiplier) return pieces;
  for (int64_t& size : pieces.sizes) {
    if (size * *multiplier % *divisor != 0) {
      throw DistributionError(fmt::format(
          "{}: '{}' is {} on {}: a piece of {} elements is no whole number of {}, "
          "which has {} elements; expected sizes that divide",
          operation.name, value.name, type.text(&operation.mesh), operation.mesh.name(axis), size,
          dim[split_label_index(dim, type)].name, *divisor));
    }
    size = size * *multiplier / *divisor;
  }
  return pieces;
}

bool may_cut_elements(const LabelledOperation& operation, size_t input, const TypeOnAxis& type) {
  const auto& dim = operation.labels.inputs[input].dims[static_cast<size_t>(type.dim)];
  const size_t factor = split_label_index(dim, type);
  if (is_whole_dim(dim) || factor + 1 == dim.size()) return false;
  const bool zigzag = type.pieces.kind == PieceKind::zigzag;
  const int64_t repeats = factor == 0 ? type.repeats : 1;
  if (!zigzag && repeats == 1) return false;
  const auto inner = known_product(operation, labels_from(dim, factor + 1));
  // A rank's piece consists of this many consecutive runs. Zigzag gives it two chunks a repeat.
  const int64_t runs = repeats * (zigzag ? 2 : 1);
  const int64_t extent = operation.inputs[input].spec.shape[type.dim];
  return !inner || *inner == 0 || extent % (runs * *inner) != 0;
}

}  // namespace tessera
