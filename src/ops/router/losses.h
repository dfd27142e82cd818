#pragma once

#include <span>

#include "ops/router/balance_form.h"
#include "program/builder.h"

namespace tessera {

// Auxiliary losses of the router, each one scalar [1]. They are defined as means over tokens; what
// is returned is that mean multiplied by the number of tokens, because the loss of the whole
// program is a sum over tokens, divided at the end by the number of tokens of the global batch.

/// The load-balance loss. `probabilities` holds [tokens, experts] for each layer and `counts` i32
/// [experts]: how many tokens chose each expert, before any are dropped. With L layers, T tokens,
/// E experts, f_e = Σ_l counts_le / (L T) and P_e = Σ_lt p_lte / (L T) the mean is
///
///   per_layer (of one layer): coefficient · E / k · Σ_e f_e P_e, which is `coefficient` in
///   balance; pooled:                   coefficient · E · Σ_e f_e P_e, which is `coefficient` · k
///   in balance.
///
/// The probabilities have a gradient, the counts none.
Value load_balance_loss(Builder& builder, std::span<const Value> probabilities,
                        std::span<const Value> counts, double coefficient, int64_t k,
                        BalanceForm form);

/// The router z-loss, coefficient · mean over tokens of (log Σ_e exp logit_te)²: logits
/// [tokens, experts], f32 (or f64).
Value router_z_loss(Builder& builder, Value logits, double coefficient);

}  // namespace tessera
