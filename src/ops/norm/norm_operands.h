#pragma once

#include <string>

#include <fmt/format.h>

#include "ops/labels.h"
#include "ops/norm/norm_kernels.h"
#include "program/operation.h"

namespace tessera {

/// The labels of a norm's operands (program/labels.h). All dims but the last are rows. The last dim
/// is normalised as a whole, or head by head.
struct NormLabels {
  NormLabels(int rank, bool by_heads)
      : x(element_labels(rank - 1) + (by_heads ? " (head channel!)" : " channel!")),
        statistic(rows(rank) + (by_heads ? " head" : " one!")) {}

  std::string x;
  std::string statistic;  ///< [rows, heads], or [rows, 1]

 private:
  static std::string rows(int rank) {
    if (rank == 1) return "row!";
    return rank == 2 ? "a" : fmt::format("({})", element_labels(rank - 1));
  }
};

/// Returns the rotation of a norm or of its gradient. It applies to the rows of the first input
/// [tokens, heads · head_dim]. The last input is the table [tokens, channels]. A `head_dim` of 0
/// means no rotation.
template <typename T>
NormRotation<T> norm_rotation(const Execution& execution, int64_t head_dim) {
  if (head_dim == 0) return {};
  const Shape& x = execution.inputs.front().shape();
  const Tensor& table = execution.inputs.back();
  return {.table = table.pointer<Compute<T>>(),
          .tokens = x[0],
          .heads = x[1] / head_dim,
          .head_dim = head_dim,
          .channels = table.shape()[1]};
}

}  // namespace tessera
