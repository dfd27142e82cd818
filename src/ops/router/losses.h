#pragma once

#include <span>

#include "ops/router/balance_form.h"
#include "program/builder.h"

namespace tessera {

// Auxiliary losses of the router, each a scalar [1]. They are defined as means over tokens. The
// functions return that mean multiplied by the number of tokens, because the loss of the whole
// program is a sum over tokens. It is divided at the end by the number of tokens of the global
// batch.

/// The load-balance loss. For each layer, `probabilities` holds [tokens, experts] and `counts`
/// holds i32 [experts]: how many tokens chose each expert, before any are dropped. There are L
/// layers, T tokens and E experts. With f_e = Σ_l counts_le / (L T) and P_e = Σ_lt p_lte / (L T),
/// the mean is
///
/// per_layer (one layer): coefficient · E / k · Σ_e f_e P_e, which is `coefficient` in balance;
/// pooled: coefficient · E · Σ_e f_e P_e, which is `coefficient` · k in balance.
///
/// The probabilities have a gradient, the counts have none.
///
/// Tokens that are split over ranks are those of one set: the sums over them are taken over all
/// ranks, T counts them all, and the loss is invariant. So its strength does not depend on the
/// layout. The counts are those of all ranks, and invariant.
Value load_balance_loss(Builder& builder, std::span<const Value> probabilities,
                        std::span<const Value> counts, double coefficient, int64_t k,
                        BalanceForm form);

/// Σ_lt p_lte in f64 [experts], from the probabilities of each layer. It is partial over the axes
/// that split the tokens.
Value probability_sums(Builder& builder, std::span<const Value> probabilities);

/// The router z-loss, coefficient · mean over tokens of (log Σ_e exp logit_te)². Logits are
/// [tokens, experts] in f32 (or f64). It is partial over the axes that split the tokens.
Value router_z_loss(Builder& builder, Value logits, double coefficient);

}  // namespace tessera
