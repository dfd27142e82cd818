#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ops/gemm/gemm.h"
#include "ops/moe/grouped_shape.h"

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

/// The faster library for the products of groups of one shape.
struct TunedGrouped {
  GroupedShape shape;
  GroupedLibrary library = GroupedLibrary::cutlass;
  double cutlass_seconds = 0;   ///< of one run, the median; 0 if CUTLASS does not have the product
  double cublaslt_seconds = 0;  ///< the same of cuBLASLt

  bool operator==(const TunedGrouped&) const = default;
};

/// What a tuning run found out. It holds for one version of a library on one kind of device.
struct TunedProducts {
  std::string library;  ///< "cuBLASLt 130100"
  std::string device;   ///< "NVIDIA H200"
  std::vector<TunedProduct> products;
  std::vector<TunedGrouped> grouped;

  /// The product's entry, or null if there is none.
  const TunedProduct* find(const GemmShape& shape, bool tf32) const;
  const TunedGrouped* find(const GroupedShape& shape) const;
  bool operator==(const TunedProducts&) const = default;
};

/// A shape without what makes no difference to a device's product: threads and packed_b. Its
/// leading dimensions are explicit.
GemmShape tuned_shape(GemmShape shape);

/// Returns the shape's entry for a table. The samples of a library that does not have the product
/// are empty; those of one are not. cuBLASLt is taken if its median is the lower one.
TunedGrouped faster_library(const GroupedShape& shape, const std::vector<double>& cutlass_seconds,
                            const std::vector<double>& cublaslt_seconds);

/// Returns the number of the fastest candidate. `seconds` has the samples of each, with that of the
/// library's own choice first. Medians count, and another candidate is taken only if it is faster
/// by more than 1 %: less may be noise, and the library's choice does not change from run to run.
size_t fastest_candidate(std::span<const std::vector<double>> seconds);

}  // namespace tessera
