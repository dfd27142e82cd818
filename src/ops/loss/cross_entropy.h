#pragma once

#include "program/builder.h"

namespace tessera {

/// The results of linear_cross_entropy().
struct CrossEntropy {
  Value loss;        ///< [1]: Σ over target tokens of -log p(target) + z · logsumexp²
  Value token_loss;  ///< [tokens]: -log p(target), 0 where there is no target; has no gradient
};

/// Computes the output head (the product of the last hidden states and the vocabulary's weight) and
/// the loss. The logits x · weightᵀ exist for one chunk of tokens at a time. x is [tokens, hidden],
/// weight is [vocabulary, hidden], and targets are i32 [tokens], with -1 for "no target". A run on
/// the processor throws Error for a target outside [-1, vocabulary); a device does not check. The
/// logits and the log-sum-exp are computed in f32 (f64 for f64). `z_coefficient` is the factor on
/// the z-loss, the term with logsumexp²; 0 means none. The operation has no gradient.
///
/// The ranks of one axis may share the vocabulary: the weight is split along dim 0 into consecutive
/// pieces, x is replicated, and all ranks have the same targets, which are indices in the whole
/// vocabulary. For each chunk the ranks all-reduce the largest logit of each token, and then the
/// token's sum of exponentials and its target's logit (Megatron-LM, arXiv:1909.08053, section 3).
/// The losses are invariant on that axis.
CrossEntropy linear_cross_entropy(Builder& builder, Value x, Value weight, Value targets,
                                  double z_coefficient = 0);

/// Computes the head and the loss for a program with a backward pass. The gradients are computed
/// while the logits are in memory, so the logits are made once. The forward pass adds the weight's
/// gradient to its main gradient. If there is no main gradient, the weight's gradient is kept for
/// the backward pass, as the gradient of x always is. `seed` [1] is the gradient of the loss, known
/// beforehand; the loss must be differentiated with no other. If ranks share the vocabulary, the
/// gradient of x is partial, and each rank has the gradient of its part of the weight.
CrossEntropy linear_cross_entropy_with_gradient(Builder& builder, Value x, Value weight,
                                                Value targets, Value seed,
                                                double z_coefficient = 0);

}  // namespace tessera
