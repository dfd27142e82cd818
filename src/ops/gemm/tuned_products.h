#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/gemm/gemm.h"

namespace tessera {

/// A library's algorithm for a product, in the library's own form.
using ProductAlgorithm = std::array<std::byte, 64>;

/// The fastest of the algorithms that a library offered for a product.
struct TunedProduct {
  GemmShape shape;    ///< in the form of tuned_shape()
  bool tf32 = false;  ///< true if operands of f32 were rounded to TF32
  ProductAlgorithm algorithm = {};
  double seconds = 0;            ///< the median time of one run
  double heuristic_seconds = 0;  ///< the same of the algorithm that the library takes by itself

  bool operator==(const TunedProduct&) const = default;
};

/// The algorithms that a run's table has for products. They are kept in the runtime's cache.
struct TunedProducts {
  bool in_use = false;  ///< true if the run has a table
  std::vector<TunedProduct> products;

  /// Returns the product's entry, or null if there is none.
  const TunedProduct* find(const GemmShape& shape, bool tf32) const;
};

/// Returns a shape without the fields that make no difference to a device's product: threads and
/// packed_b. Its leading dimensions are explicit.
GemmShape tuned_shape(GemmShape shape);

/// Returns the index of the candidate with the least median. `seconds` has the samples of each
/// candidate. Candidate 0 is the library's own choice, and it wins unless another candidate is
/// faster by more than 1 %: less may be noise, and the library's choice is the same in every run.
size_t fastest_candidate(std::span<const std::vector<double>> seconds);

}  // namespace tessera
