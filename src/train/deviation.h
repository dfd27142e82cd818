#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/layout_run.h"

namespace tessera {

/// How far a quantity of a layout is from that of one rank.
struct Deviation {
  std::string quantity;  ///< "loss", "gradients", "router counts"
  /// The largest difference over the largest number of the same tensor.
  double relative = 0;
  std::string where;  ///< the tensor or the step that has it
  /// Whether gradients have a part in it: all but what the first step computes before its update.
  bool of_gradients = true;
};

/// How a layout's results differ from one rank's: by quantity, and there by tensor or step.
std::vector<Deviation> all_deviations(const LayoutResults& one, const LayoutResults& layout);

/// The largest of each quantity.
std::vector<Deviation> deviations(const LayoutResults& one, const LayoutResults& layout);

/// A deviation in the precision of a run, beside the one that is to be expected there.
struct RoundingRatio {
  Deviation deviation;
  double expected = 0;
  double times() const { return deviation.relative == 0 ? 0 : deviation.relative / expected; }
};

/// Of the deviations of a layout from one rank, the one that is most in multiples of what is to be
/// expected: of the deviation of one rank from f64, both in the run's precision. Each gradient has
/// its own. A number of a step may be right by chance, and AdamW makes much of the rounding of a
/// gradient near zero; so of these the largest of all steps and all weights is to be expected, and
/// at least the rounding of one number. That is to `compute`, the run's type; or to `wire`, the
/// type in which gradients travel, where gradients have a part in the number.
RoundingRatio largest_rounding(const LayoutResults& exact, const LayoutResults& rounded,
                               const LayoutResults& layout, DType compute, DType wire);

/// The first loss, gradient or weight of a layout that has other bits than that of one rank; none
/// if all have the same.
std::optional<std::string> first_other_bits(const LayoutResults& one, const LayoutResults& layout);

}  // namespace tessera
