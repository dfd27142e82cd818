#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace tessera {

/// One attention as cuDNN computes it: causal, in bf16 with sums in f32. Two that are equal have
/// the same plan.
struct CudnnAttentionKind {
  int64_t sequences = 0;
  int64_t sequence = 0;  ///< queries of one sequence, and its keys
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool backward = false;
  bool documents = false;
  bool deterministic = true;  ///< of the backward pass; the forward pass always is

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the comparison with 0 that C++ writes for one
  auto operator<=>(const CudnnAttentionKind&) const = default;
};

/// For errors: "attention of 2 sequences of 4096 tokens, 16 heads on 16 of 128, bf16".
std::string text(const CudnnAttentionKind& kind);

/// cuDNN takes head dims that are multiples of the one and at most the other.
inline constexpr int64_t kCudnnHeadDimStep = 8;
inline constexpr int64_t kCudnnMostHeadDim = 256;

/// The parts of an attention's workspace, in bytes, each a multiple of kCudnnAlignment. They follow
/// from the shape alone, because a plan must know them where there is no cuDNN. They bound what
/// cuDNN 9.19 asks for on Hopper: tests compare them with its plans.
struct CudnnWorkspace {
  explicit CudnnWorkspace(const CudnnAttentionKind& kind);

  int64_t delta = 0;     ///< f32 [sequences, heads, sequence]: rowsum(dO · O)
  int64_t of_q_sum = 0;  ///< f32 [sequences, heads, sequence, head_dim]; 0 if deterministic
  int64_t library = 0;   ///< cuDNN's own

  /// All of it, with room to begin at a multiple of kCudnnAlignment.
  int64_t bytes() const;
};
inline constexpr int64_t kCudnnAlignment = 256;

}  // namespace tessera
