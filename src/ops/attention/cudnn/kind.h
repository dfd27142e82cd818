#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace tessera {

/// The way in which cuDNN's attention hides the keys of other documents from a query.
enum class CudnnDocuments {
  none,    ///< a sequence is one document: nothing is hidden
  mask,    ///< each pair of a query and a key is compared, so no work is saved
  packed,  ///< only pairs within one group of documents are computed (see PackedDocuments)
};

/// One attention as cuDNN computes it: causal, in bf16 with sums in f32. Equal kinds have the same
/// plan.
struct CudnnAttentionKind {
  int64_t sequences = 0;
  int64_t sequence = 0;  ///< queries of one sequence, and its keys
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool backward = false;
  CudnnDocuments documents = CudnnDocuments::none;
  bool deterministic = true;  ///< of the backward pass; the forward pass always is

  // NOLINTNEXTLINE(modernize-use-nullptr): the 0 of the generated comparison is no null pointer
  auto operator<=>(const CudnnAttentionKind&) const = default;
};

/// Returns how to hide the keys of other documents. Documents are packed if the run is not
/// deterministic and a sequence has more than one group of them: a deterministic gradient would
/// keep the gradients of a whole sequence's scores for every group. They are not packed where
/// cuDNN's packed gradient is known to be wrong (a head_dim that is not a multiple of 16), nor
/// where offsets exceed 32 bits.
CudnnDocuments cudnn_documents(const CudnnAttentionKind& kind, bool deterministic);

/// Returns a text for errors: "attention of 2 sequences of 4096 tokens, 16 heads on 16 of 128,
/// bf16".
std::string text(const CudnnAttentionKind& kind);

/// cuDNN takes head dims that are multiples of kCudnnHeadDimStep, up to kCudnnMostHeadDim.
inline constexpr int64_t kCudnnHeadDimStep = 8;
inline constexpr int64_t kCudnnMostHeadDim = 256;

/// The parts of an attention's workspace, in bytes, each a multiple of kCudnnAlignment. They follow
/// from the shape alone, because a plan must know them where there is no cuDNN. They bound what
/// cuDNN 9.19 asks for on Hopper, with room for newer versions; tests compare them with cuDNN's
/// plans. Packed documents have one row for each token, in whole tiles.
struct CudnnWorkspace {
  explicit CudnnWorkspace(const CudnnAttentionKind& kind);

  int64_t delta = 0;            ///< f32, a number for each query of each head: rowsum(dO · O)
  int64_t q_gradient_sums = 0;  ///< f32, a row for each query of each head; 0 if deterministic
  /// For packed documents with fewer key heads than query heads: a row for each query head and key,
  /// once for the gradients of keys and once for those of values.
  int64_t head_gradients = 0;
  int64_t packed_log_sum_exp = 0;  ///< f32 [tokens, heads], if documents are packed
  int64_t packing = 0;             ///< the arrays of PackedDocuments
  int64_t library = 0;             ///< cuDNN's own part, with kCudnnRoom and a 32nd to spare

  /// Returns the sum of all parts, with room to align the beginning to kCudnnAlignment.
  int64_t bytes() const;
};
inline constexpr int64_t kCudnnAlignment = 256;
inline constexpr int64_t kCudnnRoom = int64_t{1} << 20;  // bytes, for newer versions

}  // namespace tessera
