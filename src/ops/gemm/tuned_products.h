#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/gemm/gemm.h"

namespace tessera {

/// A library's algorithm for a product, in the library's own form.
using ProductAlgorithm = std::array<std::byte, 64>;

/// The algorithm that was the fastest for a product, of those that a library offered.
struct TunedProduct {
  GemmShape shape;    ///< in the form of tuned_shape()
  bool tf32 = false;  ///< operands of f32 were rounded to TF32
  ProductAlgorithm algorithm = {};
  double seconds = 0;            ///< of one run, the median
  double heuristic_seconds = 0;  ///< the same for the algorithm that the library takes by itself

  bool operator==(const TunedProduct&) const = default;
};

/// The algorithms that a run's table has for products. It lies in the runtime's cache.
struct TunedProducts {
  bool in_use = false;  ///< whether the run has a table
  std::vector<TunedProduct> products;

  /// The product's entry, or null if there is none.
  const TunedProduct* find(const GemmShape& shape, bool tf32) const;
};

/// A shape without what makes no difference to a device's product: threads and packed_b. Its
/// leading dimensions are explicit.
GemmShape tuned_shape(GemmShape shape);

/// Returns the number of the fastest candidate. `seconds` has the samples of each, with that of the
/// library's own choice first. Medians count, and another candidate is taken only if it is faster
/// by more than 1 %: less may be noise, and the library's choice does not change from run to run.
size_t fastest_candidate(std::span<const std::vector<double>> seconds);

}  // namespace tessera
