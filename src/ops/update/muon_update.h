#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

/// A matrix, or one matrix of each expert, that Muon updates. A rank may have a piece of it.
struct MuonMatrix {
  Value update;                 ///< the orthogonalised momentum
  Value master;                 ///< in the accumulation type
  std::optional<Value> weight;  ///< the master rounded to bf16; none if it is the weight
  double factor = 1;            ///< of the update: muon_factor() of the whole matrix
  bool decays = true;
};

/// What Muon multiplies an orthogonal update with, so that the root of its mean square is 0.2, as
/// AdamW's is, and both take one learning rate (Moonlight; ZAYA1, section IV-D):
/// 0.2 sqrt(max(rows, columns)). `shape` may have a leading dim of experts.
double muon_factor(const Shape& shape);

/// The inputs that change from step to step, f64 [1] each.
struct MuonInputs {
  Value scale;  ///< factor on the gradients; with NaN nothing is updated
  Value learning_rate;
};

/// The second of Muon's two passes over memory (ZAYA1, section V-B1), over matrices which all have
/// a rounded weight, or none of which has one: w = w - lr · decay · w - lr · factor · update.
void muon_update(Builder& builder, const MuonInputs& inputs, std::span<const MuonMatrix> matrices,
                 double weight_decay);

}  // namespace tessera
