#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ops/router/balance_form.h"
#include "program/builder.h"

namespace tessera {

// Auxiliary losses of the router. A loss is defined as a mean over tokens, but its function returns
// the mean times the number of tokens, a scalar [1], because the loss of the whole program is a sum
// over tokens. That sum is divided at the end by the number of tokens of the global batch.

/// The layers that other programs have before this one's, for a loss that pools all layers.
struct EarlierLayers {
  int64_t layers = 0;      ///< their number; without any, the values are null
  Value probability_sums;  ///< as probability_sums() returns it
  Value counts;            ///< Σ_l counts_le, in the type and shape of a layer's counts
};

/// Returns the load-balance loss. For each layer, `probabilities` holds [tokens, experts], and
/// `counts` [experts] is the number of tokens that chose each expert, before any are dropped. There
/// are L layers, T tokens and E experts, of which a token chooses k. With
/// f_e = Σ_l counts_le / (L T) and P_e = Σ_lt p_lte / (L T), the mean is
///
/// per_layer (one layer): coefficient · E / k · Σ_e f_e P_e, which is `coefficient` in balance;
/// pooled: coefficient · E · Σ_e f_e P_e, which is `coefficient` · k in balance.
///
/// The probabilities have a gradient, the counts have none.
///
/// The type of the counts tells the set of tokens (BalanceTokens). The sums over a set are taken
/// over all ranks that share the set, and T is the number of its tokens on all these ranks. So a
/// loss does not depend on how ranks share a set.
///
/// micro_batch: i32 [experts], the counts of all ranks. They are invariant, and so is the loss.
/// rank: i32 [sets, experts] of set_counts(). Each set has its own f and P, and the loss is the sum
///   over the sets: it is partial over the axes that split the sets.
/// global_batch: f64 [experts] of step_counts(). With counts c_1 to c_n of the n micro-batches so
///   far, f_e is Σ_i c_ie / (n T), without a gradient. P_e is that of this micro-batch.
///   Megatron-LM (`global_aux_loss` in core/transformer/moe/router.py) and Qwen (Qiu et al.,
///   "Demons in the Detail: On Implementing Load Balancing Loss for Training Specialized
///   Mixture-of-Expert Models", arXiv 2501.11873) do the same, because the counts of later
///   micro-batches are not known.
///
/// In balance f_e = k / E for any set, and Σ_e P_e = 1. So the mean over a step's tokens is the
/// same for all three sets of tokens.
///
/// `earlier` has the layers of other programs, which come before those of this program. L counts
/// them too. They have a part in a pooled loss only. The loss has the same bits as if one program
/// had all layers; on a device, the order of its sums may differ.
Value load_balance_loss(Builder& builder, std::span<const Value> probabilities,
                        std::span<const Value> counts, double coefficient, int64_t k,
                        BalanceForm form, const EarlierLayers& earlier = {});

/// Returns the given layers and those before them as the earlier layers of the program that
/// continues.
EarlierLayers layers_so_far(Builder& builder, std::span<const Value> probabilities,
                            std::span<const Value> counts, const EarlierLayers& earlier = {});

/// Returns Σ_lt p_lte in f64 [experts], a part of load_balance_loss(), from the probabilities of
/// each layer. It is partial over the axes that split the tokens. With `sets`, it is
/// [sets, experts]: a sum for each of the rank's sets of tokens (see set_counts()). The sum begins
/// with `earlier`, the result for the layers before, if there are any.
Value probability_sums(Builder& builder, std::span<const Value> probabilities,
                       std::optional<int64_t> sets = {}, std::optional<Value> earlier = {});

/// Returns Σ_l counts_le of layers' counts, in their type and shape. There is no gradient.
Value sum_of_counts(Builder& builder, std::span<const Value> counts);

/// Returns the router z-loss, coefficient · mean over tokens of (log Σ_e exp logit_te)². Logits are
/// [tokens, experts] in f32 or f64. The loss is partial over the axes that split the tokens.
Value router_z_loss(Builder& builder, Value logits, double coefficient);

}  // namespace tessera
