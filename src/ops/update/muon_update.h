#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

/// A matrix, or one matrix of each expert, that Muon updates. A rank may have a piece of it.
struct MuonMatrix {
  Value update;                 ///< the orthogonalised momentum
  Value master;                 ///< in the accumulation type
  std::optional<Value> weight;  ///< the master rounded to bf16; none if the master is the weight
  double factor = 1;            ///< on the update: muon_factor() of the whole matrix
  bool decays = true;
};

/// Returns the factor on an orthogonal update, 0.2 sqrt(max(rows, columns)). With it the root of
/// the update's mean square is 0.2, as AdamW's is, so that both take one learning rate (Moonlight;
/// ZAYA1, section IV-D). `shape` may have a leading dim of experts.
double muon_factor(const Shape& shape);

/// The inputs that change from step to step, f64 [1] each.
struct MuonInputs {
  Value scale;  ///< factor on the gradients; if NaN, nothing is updated
  Value learning_rate;
};

/// Does the second of Muon's two passes over memory (ZAYA1, section V-B1):
/// w = w - lr · decay · w - lr · factor · update. Either all matrices have a rounded weight, or
/// none has one.
void muon_update(Builder& builder, const MuonInputs& inputs, std::span<const MuonMatrix> matrices,
                 double weight_decay);

}  // namespace tessera
