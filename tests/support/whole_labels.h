#pragma once

#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "program/value.h"

namespace tessera::testing {

/// Labels of an operation of a test, whose dims have nothing to do with each other: all are whole.
/// `outputs` are the ranks of the outputs; the positions of `updated` are those of inputs that are
/// added into.
inline std::string whole_labels(std::span<const Spec> inputs, const std::vector<int>& outputs,
                                const std::vector<int>& updated = {}) {
  int next = 0;
  const auto dims = [&](int rank) {
    std::string labels;
    for (int dim = 0; dim < rank; ++dim) labels += fmt::format(" d{}", next++);
    return labels;
  };
  std::string read;
  std::string written;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool is_updated = false;
    for (const int place : updated) is_updated |= place == static_cast<int>(i);
    if (!is_updated) read += (read.empty() ? "" : ",") + dims(inputs[i].shape.rank());
  }
  for (const int rank : outputs) written += (written.empty() ? "" : ",") + dims(rank);
  for (const int place : updated) {
    written += (written.empty() ? "+= ?" : ", += ?") +
               dims(inputs[static_cast<size_t>(place)].shape.rank());
  }
  return read + " -> " + written;
}

}  // namespace tessera::testing
