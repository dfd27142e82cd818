#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/layout_run.h"

namespace tessera {

/// The deviation of a quantity of a layout from that of one rank.
struct Deviation {
  std::string quantity;  ///< "loss", "gradients", "router counts"
  /// The largest difference, divided by the largest number of the tensor. A gradient may be zero
  /// but for rounding: its largest number counts as at least a thousandth of that of all gradients.
  double relative = 0;
  std::string where;      ///< the tensor and the step with the largest difference
  std::string tensor;     ///< the tensor's name; empty for a number of a step
  double difference = 0;  ///< the largest difference
  double largest = 0;     ///< the number by which the difference is divided
};

/// Returns the largest deviation of each quantity.
std::vector<Deviation> deviations(const LayoutResults& one_rank, const LayoutResults& layout);

/// A deviation in the precision of a run, and its ratio to the expected one.
struct RoundingRatio {
  Deviation deviation;
  double times = 0;  ///< the deviation, in multiples of the expected one
};

/// Returns the deviation of a layout from one rank that is largest in multiples of the expected
/// one. What is expected is the deviation of one rank in the run's precision (`rounded`) from f64
/// (`exact`): for each gradient and weight by itself, the largest of all steps, because a number
/// may be right by chance.
///
/// The expected deviation is at least the rounding of one number. Losses are rounded to `compute`,
/// the run's type, and gradients to `wire`, in which they are sent. Numbers that follow from
/// gradients are rounded to the type in which gradients are kept, because one rank takes the
/// layout's gradients for its update (see LayoutTrial::followed).
RoundingRatio largest_rounding(const LayoutResults& exact, const LayoutResults& rounded,
                               const LayoutResults& layout, DType compute, DType wire);

/// Returns the name of the first weight that is not its rounded master, though the ranks compute
/// with it; none if there is none.
std::optional<std::string> first_stale_weight(const LayoutResults& layout);

/// Returns what differs first in bits from one rank: the results of a step, else a gradient, else a
/// weight. Returns none if all are equal.
std::optional<std::string> first_different_bits(const LayoutResults& one_rank,
                                                const LayoutResults& layout);

}  // namespace tessera
