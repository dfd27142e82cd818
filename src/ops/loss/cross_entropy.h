#pragma once

#include "program/builder.h"

namespace tessera {

/// What linear_cross_entropy() gives.
struct CrossEntropy {
  Value loss;        ///< [1]: Σ over target tokens of -log p(target) + z · logsumexp²
  Value token_loss;  ///< [tokens]: -log p(target), 0 where there is no target; has no gradient
};

/// The output head and the loss in one: logits = x · weightᵀ are made a chunk of tokens at a time
/// in f32 and never kept. x [tokens, hidden], weight [vocabulary, hidden], targets i32 [tokens]
/// with -1 for "no target". The log-sum-exp is taken in f32 (f64 for f64). `z_coefficient` weighs
/// the z-loss, 0 for none. It has no gradient.
CrossEntropy linear_cross_entropy(Builder& builder, Value x, Value weight, Value targets,
                                  double z_coefficient = 0);

/// The same for a program with a backward pass, whose gradients are taken while the logits are at
/// hand, so that they are made once: the forward pass adds the weight's gradient into its main
/// gradient, where it has one, and otherwise keeps it, as it keeps that of x. `seed` [1] is the
/// loss's gradient, known beforehand; the loss must be differentiated with this seed and no other.
CrossEntropy linear_cross_entropy_with_gradient(Builder& builder, Value x, Value weight,
                                                Value targets, Value seed,
                                                double z_coefficient = 0);

}  // namespace tessera
