#pragma once

#include <string>

#include <fmt/format.h>

#include "ops/labels.h"

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

}  // namespace tessera
