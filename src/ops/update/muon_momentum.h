#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// A matrix, or one matrix of each expert, with its momentum. Both values have the accumulation
/// type.
struct MuonMomentum {
  Value gradient;
  Value momentum;
};

/// Does the first of Muon's two passes over memory (ZAYA1, section V-B1): it updates the momenta
/// and returns the matrices u that Newton-Schulz orthogonalises, in `dtype`, of each matrix's
/// shape. With g' = scale · g,
///   m = μ m + g', u = g' + μ m (Nesterov's momentum).
/// `scale` is f64 [1], the factor on gradients. If it is NaN, no momentum changes and u is zero.
std::vector<Value> muon_momentum(Builder& builder, Value scale,
                                 std::span<const MuonMomentum> matrices, double momentum,
                                 DType dtype);

}  // namespace tessera
