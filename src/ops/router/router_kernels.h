#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera {

class Stream;

// The router's device kernels. They compute in f32 and put their work into the stream. All pointers
// are to device memory, and matrices begin on 64 bytes.

/// The largest number of experts of a router on a device.
inline constexpr int64_t kMostDeviceExperts = 8192;

/// Writes probabilities = softmax(logits), both [tokens, experts]; they may be the same memory.
template <typename Vendor>
void router_softmax_device(int64_t tokens, int64_t experts, const float* logits,
                           float* probabilities, Stream& stream);
/// Writes logits_gradient = p ⊙ (probabilities_gradient − Σ_e p_e probabilities_gradient_e), all
/// [tokens, experts]; both gradients may be the same memory.
template <typename Vendor>
void router_softmax_gradient_device(int64_t tokens, int64_t experts, const float* probabilities,
                                    const float* probabilities_gradient, float* logits_gradient,
                                    Stream& stream);

/// The choice of the k most probable experts, and the computation of their weights.
template <typename T>
struct RouterChoice {
  int64_t tokens;
  int64_t experts;
  int64_t k;
  bool renormalise;
  bool forced_uniform;
  const T* probabilities;  // [tokens, experts]
  const int32_t* pinned;   // [tokens, k]: if not null, the choice, whatever the rest says
  const T* biases;         // [experts]: if not null, added to the probabilities for the choice
  T* weights;              // [tokens, k]
  int32_t* indices;        // [tokens, k]
};

/// The gradient of the probabilities, from the gradient of the weights.
template <typename T>
struct RouterChoiceGradient {
  int64_t tokens;
  int64_t experts;
  int64_t k;
  bool renormalise;
  const T* probabilities;     // [tokens, experts]
  const int32_t* indices;     // [tokens, k]
  const T* weights_gradient;  // [tokens, k]
  T* probabilities_gradient;  // [tokens, experts]
};

/// Chooses the experts, with the bits of the plain kernel.
template <typename Vendor>
void router_top_k_device(const RouterChoice<float>& choice, Stream& stream);
/// Computes the gradient, with the bits of the plain kernel.
template <typename Vendor>
void router_top_k_gradient_device(const RouterChoiceGradient<float>& gradient, Stream& stream);

/// Writes loss[0] = coefficient · Σ_t z_t², with z_t = log Σ_e exp logits_te. `parts` is scratch
/// memory with an element for each token.
template <typename Vendor>
void router_z_loss_device(int64_t tokens, int64_t experts, double coefficient, const float* logits,
                          float* parts, float* loss, Stream& stream);
/// Writes logits_gradient_te = 2 · coefficient · loss_gradient[0] · z_t · softmax(logits_t)_e.
template <typename Vendor>
void router_z_loss_gradient_device(int64_t tokens, int64_t experts, double coefficient,
                                   const float* logits, const float* loss_gradient,
                                   float* logits_gradient, Stream& stream);

/// The layers of one load-balance loss, for the kernels of its sums, its value and its gradient.
struct BalanceLayers {
  static constexpr int kMostLayers = 128;  ///< the largest number of layers on a device
  std::array<const float*, kMostLayers> probabilities{};  // each [tokens, experts]
  std::array<const void*, kMostLayers> counts{};          // each [experts]: i32, or f64 means
  bool counts_are_means = false;
  int count = 0;  ///< the number of layers
  int64_t tokens = 0;
  int64_t experts = 0;
};

/// Returns the number of blocks into which each layer's tokens are divided for their sums. A block
/// has up to 64 tokens, or more where all layers together would have over 1024 blocks.
inline int64_t probability_blocks(int64_t layers, int64_t tokens) {
  constexpr int64_t kBlockTokens = 64;
  const int64_t max_blocks = std::max<int64_t>(1, 1024 / layers);
  return std::clamp<int64_t>((tokens + kBlockTokens - 1) / kBlockTokens, 1, max_blocks);
}

/// Writes sums_e = earlier_e + Σ_lt p_lte, in f64 [experts]; `earlier` may be null. It does not
/// read layers.counts. `parts` is scratch memory, [layers, probability_blocks(), experts].
template <typename Vendor>
void probability_sums_device(const BalanceLayers& layers, const double* earlier, float* parts,
                             double* sums, Stream& stream);
/// Writes probabilities_gradient_te = sums_gradient_e, [tokens, experts].
template <typename Vendor>
void probability_sums_gradient_device(int64_t tokens, int64_t experts, const double* sums_gradient,
                                      float* probabilities_gradient, Stream& stream);

/// Writes means_e = sum_e Σ_e counts_e / Σ_e sum_e, [experts]; 0 if Σ_e sum_e is 0.
template <typename Vendor>
void step_counts_device(int64_t experts, const double* sum, const int32_t* counts, double* means,
                        Stream& stream);

/// Writes sums_e = Σ_l counts_le, in the type of the counts. Does not read the probabilities.
template <typename Vendor>
void sum_of_counts_device(const BalanceLayers& layers, void* sums, Stream& stream);

/// Writes loss[0] = factor · Σ_e (Σ_l counts_le) sums_e. Does not read the probabilities.
template <typename Vendor>
void load_balance_loss_device(const BalanceLayers& layers, double factor, const double* sums,
                              float* loss, Stream& stream);
/// Writes sums_gradient_e = factor · loss_gradient[0] · Σ_l counts_le, [experts], computed in f32.
template <typename Vendor>
void load_balance_gradient_device(const BalanceLayers& layers, double factor,
                                  const float* loss_gradient, double* sums_gradient,
                                  Stream& stream);

}  // namespace tessera
