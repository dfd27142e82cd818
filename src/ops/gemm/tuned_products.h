#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/accelerator.h"
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

/// The time that the measurement of a product's algorithms may take.
struct TuningBudget {
  int rounds = 5;                   ///< in each, every candidate is measured once
  int candidates = 16;              ///< the most algorithms that are measured
  double seconds_a_sample = 0.002;  ///< the approximate time of one measurement
};

/// Returns memory of the device that is full of random numbers, valid as bf16 and as f32. With
/// zeros the GPU would draw less power, and so run faster than in training.
std::unique_ptr<DeviceMemory> random_operand(Accelerator& accelerator, int64_t bytes,
                                             uint64_t seed);

/// Returns the number of runs in one sample of a measurement, from 1 to 1000. `seconds` is the time
/// of one run.
int64_t runs_of_sample(double seconds, const TuningBudget& budget);

}  // namespace tessera
