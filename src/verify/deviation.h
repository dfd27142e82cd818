#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/layout_run.h"

namespace tessera {

/// How far a quantity of a layout is from that of one rank.
struct Deviation {
  std::string quantity;  ///< "loss", "gradients", "router counts"
  /// The largest difference over the largest number of the same tensor. A gradient may be zero but
  /// for rounding, so its largest number counts as kZeroGradient of that of all gradients at least.
  double relative = 0;
  std::string where;      ///< the tensor and the step that have it
  std::string tensor;     ///< its name; empty for a number of a step
  double difference = 0;  ///< the largest
  double largest = 0;     ///< the number that it is relative to
};

inline constexpr double kZeroGradient = 1e-3;

/// How a layout's results differ from one rank's: by quantity, and there by tensor or step.
std::vector<Deviation> all_deviations(const LayoutResults& one, const LayoutResults& layout);

/// The largest of each quantity.
std::vector<Deviation> deviations(const LayoutResults& one, const LayoutResults& layout);

/// A deviation in the precision of a run, in multiples of the one that is to be expected there.
struct RoundingRatio {
  Deviation deviation;
  double times = 0;
};

/// Of the deviations of a layout from one rank, the one that is most in multiples of what is to be
/// expected: of the deviation of one rank from f64, both in the run's precision. Each gradient and
/// each weight has its own, so none is judged by the rounding of another. A number may be right by
/// chance, so the largest of all steps is to be expected.
///
/// At least the rounding of one number is to be expected. For losses that is to `compute`, the
/// run's type. It is to `wire`, in which gradients travel, for gradients; and to the type in which
/// they are kept for all that follows from them, because one rank follows the gradients of the
/// layout (see LayoutTrial::followed).
RoundingRatio largest_rounding(const LayoutResults& exact, const LayoutResults& rounded,
                               const LayoutResults& layout, DType compute, DType wire);

/// The first weight of which the ranks' programs compute with other numbers than with its master,
/// rounded to the type of the program; none if there is none.
std::optional<std::string> first_stale_weight(const LayoutResults& layout);

/// The first loss, gradient or weight of a layout that has other bits than that of one rank; none
/// if all have the same.
std::optional<std::string> first_other_bits(const LayoutResults& one, const LayoutResults& layout);

}  // namespace tessera
