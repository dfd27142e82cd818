#pragma once

#include <optional>
#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

// Muon's two passes over memory (ZAYA1, section V-B1). muon_momentum() comes before the
// orthogonalisation (newton_schulz.h), muon_update() after it. A "matrix" is a value [rows,
// columns], or [experts, rows, columns] with one matrix of each expert. A rank may hold a piece of
// a matrix.

/// A gradient and its momentum, both in the accumulation type.
struct MuonMomentum {
  Value gradient;
  Value momentum;
};

/// Updates the momenta, and returns the matrices u that Newton-Schulz orthogonalises, in `dtype`.
/// With g' = scale · g and μ = `momentum`,
///   m = μ m + g', u = g' + μ m (Nesterov's momentum).
/// `scale` is f64 [1], the factor on gradients. If it is NaN, no momentum changes and u is zero.
std::vector<Value> muon_momentum(Builder& builder, Value scale,
                                 std::span<const MuonMomentum> matrices, double momentum,
                                 DType dtype);

/// A matrix that Muon updates.
struct MuonMatrix {
  Value update;                 ///< the orthogonalised momentum
  Value master;                 ///< the master weight, in the accumulation type
  std::optional<Value> weight;  ///< the master rounded to bf16; none if the master is the weight
  double factor = 1;            ///< on the update: muon_factor() of the whole matrix
  bool decays = true;           ///< whether weight decay applies
};

/// Returns the factor on an orthogonal update, 0.2 sqrt(max(rows, columns)). It gives the update a
/// root mean square of 0.2, about that of AdamW's updates, so both optimizers take one learning
/// rate (Moonlight; ZAYA1, section IV-D). `shape` may have a leading dim of experts.
double muon_factor(const Shape& shape);

/// The inputs that change from step to step, f64 [1] each.
struct MuonInputs {
  Value scale;  ///< factor on the gradients; if NaN, nothing is updated
  Value learning_rate;
};

/// Updates the masters and their rounded weights:
///   w = w - lr · decay · w - lr · factor · update, with decay = `weight_decay` or 0.
/// There is at least one matrix. Either all matrices have a rounded weight, or none has one.
void muon_update(Builder& builder, const MuonInputs& inputs, std::span<const MuonMatrix> matrices,
                 double weight_decay);

}  // namespace tessera
