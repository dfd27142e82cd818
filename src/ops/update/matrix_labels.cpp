#include "ops/update/matrix_labels.h"

#include <fmt/format.h>

namespace tessera {
namespace {

/// Returns the labels of all matrices, with `dim_mark` after each label of rows or columns.
std::string marked_labels(std::span<const Spec> matrices, std::string_view separator,
                          std::string_view prefix, std::string_view dim_mark) {
  std::string text;
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (i > 0) text += separator;
    text += prefix;
    if (matrices[i].shape.rank() == 3) text += fmt::format("e{} ", i);
    text += fmt::format("r{0}{1} c{0}{1}", i, dim_mark);
  }
  return text;
}

}  // namespace

std::string matrices_labels(std::span<const Spec> matrices, std::string_view separator,
                            std::string_view prefix) {
  return marked_labels(matrices, separator, prefix, "");
}

std::string whole_matrices_labels(std::span<const Spec> matrices, std::string_view separator) {
  return marked_labels(matrices, separator, "", "!");
}

HandRule matrices_rule(std::string_view operation, size_t scalar_inputs, size_t output_lists) {
  return [=](Axis, std::span<const TypeOnAxis> inputs) {
    std::vector<TypeOnAxis> outputs;
    for (size_t i = 0; i < scalar_inputs; ++i) {
      if (!inputs[i].split() && inputs[i].placement != Placement::partial) continue;
      throw DistributionError(fmt::format("{}: input {} is {}; expected one number for all ranks",
                                          operation, i, inputs[i].text()));
    }
    for (size_t list = 0; list < output_lists; ++list) {
      for (const TypeOnAxis& matrix : inputs.subspan(scalar_inputs)) {
        if (matrix.placement == Placement::partial) {
          throw DistributionError(
              fmt::format("{}: a matrix is partial; expected its sum taken", operation));
        }
        outputs.push_back(matrix);
      }
    }
    return outputs;
  };
}

HandRule whole_matrices_rule(std::string_view operation, const std::vector<int>& dim_counts) {
  return [=, matrix_rule = matrices_rule(operation, 0, 1)](Axis axis,
                                                           std::span<const TypeOnAxis> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].split() || (dim_counts[i] == 3 && inputs[i].dim == 0)) continue;
      throw DistributionError(fmt::format("{}: matrix {} is {}; expected it whole on each rank",
                                          operation, i, inputs[i].text()));
    }
    return matrix_rule(axis, inputs);
  };
}

HandRule sum_of_matrices_rule(std::string_view operation, const HandRule& matrix_rule) {
  return [=](Axis axis, std::span<const TypeOnAxis> inputs) {
    const std::vector<TypeOnAxis> types = matrix_rule(axis, inputs).value();
    for (const TypeOnAxis& type : types) {
      if (type.split() == types[0].split()) continue;
      throw DistributionError(fmt::format("{}: a matrix is {} beside one that is {}", operation,
                                          type.text(), types[0].text()));
    }
    return std::vector{types[0].split() ? partial() : types[0]};
  };
}

MatrixExtent matrix_extent(const Shape& shape) {
  if (shape.rank() == 3) return {shape[0], shape[1], shape[2]};
  return {1, shape[0], shape[1]};
}

bool has_matrices(const Shape& shape) { return shape.rank() == 2 || shape.rank() == 3; }

}  // namespace tessera
