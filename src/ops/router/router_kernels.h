#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera {

class Stream;

// The router's kernels of devices. They compute in f32 and put their work into the stream. All
// pointers are the device's, and matrices begin on 64 bytes.

/// The experts that a device's router may have: a block keeps a number for each in shared memory.
inline constexpr int64_t kMostDeviceExperts = 8192;

/// probabilities = softmax(logits), both [tokens, experts]; they may be the same memory.
template <typename Vendor>
void router_softmax_device(int64_t tokens, int64_t experts, const float* logits,
                           float* probabilities, Stream& stream);
/// of_logits = p ⊙ (of_probabilities − Σ_e p_e of_probabilities_e), all [tokens, experts]; both
/// gradients may be the same memory.
template <typename Vendor>
void router_softmax_gradient_device(int64_t tokens, int64_t experts, const float* probabilities,
                                    const float* of_probabilities, float* of_logits,
                                    Stream& stream);

/// The choice of the k most probable experts, and what weighs them.
struct RouterChoice {
  int64_t tokens;
  int64_t experts;
  int64_t k;
  bool renormalise;
  bool forced_uniform;
  const float* probabilities;  // [tokens, experts]
  const int32_t* pinned;       // [tokens, k]: the choice, if not null
  const float* biases;         // [experts]: added for the choice, if not null
  float* weights;              // [tokens, k]
  int32_t* indices;            // [tokens, k]
};

/// The gradient of the weights, carried to the probabilities.
struct RouterChoiceGradient {
  int64_t tokens;
  int64_t experts;
  int64_t k;
  bool renormalise;
  const float* probabilities;  // [tokens, experts]
  const int32_t* indices;      // [tokens, k]
  const float* of_weights;     // [tokens, k]
  float* of_probabilities;     // [tokens, experts]
};

/// Both give the bits of the plain kernels.
template <typename Vendor>
void router_top_k_device(const RouterChoice& choice, Stream& stream);
template <typename Vendor>
void router_top_k_gradient_device(const RouterChoiceGradient& gradient, Stream& stream);

/// loss[0] = factor · the sum of parts [count], in one order.
template <typename Vendor>
void router_loss_sum_device(const float* parts, int64_t count, double factor, float* loss,
                            Stream& stream);

/// loss[0] = coefficient · Σ_t z_t², with z_t = log Σ_e exp logits_te. `parts` is scratch memory of
/// as many elements as there are tokens.
template <typename Vendor>
void router_z_loss_device(int64_t tokens, int64_t experts, double coefficient, const float* logits,
                          float* parts, float* loss, Stream& stream);
/// of_logits_te = 2 · coefficient · of_loss[0] · z_t · softmax(logits_t)_e.
template <typename Vendor>
void router_z_loss_gradient_device(int64_t tokens, int64_t experts, double coefficient,
                                   const float* logits, const float* of_loss, float* of_logits,
                                   Stream& stream);

/// The layers of one load-balance loss.
struct BalanceLayers {
  static constexpr int kMost = 128;
  std::array<const float*, kMost> probabilities{};  // each [tokens, experts]
  std::array<const void*, kMost> counts{};          // each [experts]: i32, or f64 if they are means
  bool means = false;
  int count = 0;
  int64_t tokens = 0;
  int64_t experts = 0;
};

/// The blocks of tokens of each layer that are summed apart: of at least 64 tokens, but not over
/// 1024 for all layers together.
inline int64_t probability_blocks(int64_t layers, int64_t tokens) {
  constexpr int64_t kEach = 64;
  const int64_t most = std::max<int64_t>(1, 1024 / layers);
  return std::clamp<int64_t>((tokens + kEach - 1) / kEach, 1, most);
}

/// sums_e = Σ_lt p_lte, in f64 [experts]. `parts` is scratch memory of
/// [layers, probability_blocks(), experts]. It reads no counts.
template <typename Vendor>
void probability_sums_device(const BalanceLayers& layers, float* parts, double* sums,
                             Stream& stream);
/// of_probabilities_te = of_sums_e, [tokens, experts].
template <typename Vendor>
void probability_sums_gradient_device(int64_t tokens, int64_t experts, const double* of_sums,
                                      float* of_probabilities, Stream& stream);

/// means_e = sum_e Σ_e counts_e / Σ_e sum_e, [experts].
template <typename Vendor>
void step_counts_device(int64_t experts, const double* sum, const int32_t* counts, double* means,
                        Stream& stream);

/// loss[0] = factor · Σ_e (Σ_l counts_le) sums_e. It reads no probabilities.
template <typename Vendor>
void load_balance_loss_device(const BalanceLayers& layers, double factor, const double* sums,
                              float* loss, Stream& stream);
/// of_sums_e = factor · of_loss[0] · Σ_l counts_le, [experts], with the bits of f32.
template <typename Vendor>
void load_balance_gradient_device(const BalanceLayers& layers, double factor, const float* of_loss,
                                  double* of_sums, Stream& stream);

}  // namespace tessera
