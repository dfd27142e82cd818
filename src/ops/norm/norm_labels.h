#pragma once

#include <string>

#include "ops/labels.h"

namespace tessera {

/// The labels of a norm's operands. Rows are all dims but the last; the last is whole, or heads of
/// which each is normed by itself.
struct NormLabels {
  NormLabels(int rank, bool by_heads)
      : x(element_labels(rank - 1) + (by_heads ? " (head channel!)" : " channel!")),
        statistic((rank == 1   ? "row!"
                   : rank == 2 ? "a"
                               : "(" + element_labels(rank - 1) + ")") +
                  (by_heads ? " head" : " one!")) {}

  std::string x;
  std::string statistic;  ///< [rows, heads], or [rows, 1]
};

}  // namespace tessera
