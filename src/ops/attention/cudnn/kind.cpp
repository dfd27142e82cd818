#include "ops/attention/cudnn/kind.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "base/round_up.h"
#include "ops/attention/packed_documents.h"

namespace tessera {
namespace {

constexpr int64_t kTile = 128;  // cuDNN's tiles have at most this many queries or keys
constexpr int64_t kBFloat16 = 2, kFloat = 4, kInt = 4;

bool packed(const CudnnAttentionKind& kind) { return kind.documents == CudnnDocuments::packed; }

/// Returns the tokens of packed documents, in whole tiles: cuDNN may touch all of the last tile.
int64_t packed_tokens(const CudnnAttentionKind& kind) {
  return round_up(kind.sequences * kind.sequence, kTile);
}

/// Returns the bytes in which cuDNN keeps descriptions of the operands of packed documents. A
/// description has 128 bytes. The forward pass has two for each group and two groups more, or one
/// for each multiprocessor if that is more; the H200 has 132. The backward pass has, for each of 7
/// operands, half a description for each group and one group more.
int64_t packed_library_bytes(const CudnnAttentionKind& kind) {
  constexpr int64_t kDescription = 128, kMostMultiprocessors = 256, kOperands = 7;
  const int64_t groups = DocumentGroups(kind.sequences, kind.sequence).count();
  if (kind.backward) return kOperands * round_up((groups + 1) * kDescription / 2, kDescription);
  return std::max(kMostMultiprocessors, 2 * (groups + 2)) * kDescription;
}

/// Returns the bytes that cuDNN 9.19 needs for itself. The deterministic backward pass writes the
/// gradients of all scores, in whole tiles, and sums them over the keys afterwards. If query heads
/// share key heads, both backward passes first write the gradients by query head.
int64_t library_bytes(const CudnnAttentionKind& kind) {
  int64_t bytes = kCudnnAlignment;
  if (packed(kind)) return bytes + round_up(packed_library_bytes(kind), kCudnnAlignment);
  if (!kind.backward) return bytes;
  const int64_t heads = kind.sequences * kind.heads;
  if (kind.deterministic) {
    const int64_t rows = round_up(kind.sequence, kTile);
    bytes += heads * rows * rows * kBFloat16;
  }
  if (kind.heads != kind.kv_heads) {
    bytes += 2 * round_up(heads * kind.sequence * kind.head_dim * kBFloat16, kCudnnAlignment);
  }
  return bytes;
}

std::string documents_text(const CudnnAttentionKind& kind) {
  switch (kind.documents) {
    case CudnnDocuments::none:
      return "";
    case CudnnDocuments::mask:
      return ", documents";
    case CudnnDocuments::packed:
      return ", packed documents";
  }
  return "";
}

}  // namespace

CudnnDocuments cudnn_documents(const CudnnAttentionKind& kind, bool deterministic) {
  constexpr int64_t kPackedHeadDimStep = 16;
  const int64_t elements = packed_tokens(kind) * kind.heads * kind.head_dim;
  const bool packs =
      !deterministic && DocumentGroups(kind.sequences, kind.sequence).per_sequence() > 1 &&
      kind.head_dim % kPackedHeadDimStep == 0 && elements <= std::numeric_limits<int32_t>::max();
  return packs ? CudnnDocuments::packed : CudnnDocuments::mask;
}

std::string text(const CudnnAttentionKind& kind) {
  return fmt::format("{} of {} sequences of {} tokens, {} heads on {} of {}, bf16{}{}",
                     kind.backward ? "attention_gradient" : "attention", kind.sequences,
                     kind.sequence, kind.heads, kind.kv_heads, kind.head_dim, documents_text(kind),
                     kind.backward && kind.deterministic ? ", deterministic" : "");
}

CudnnWorkspace::CudnnWorkspace(const CudnnAttentionKind& kind) {
  const int64_t known = library_bytes(kind);
  library = known + kCudnnRoom + round_up(known / 32, kCudnnAlignment);
  int64_t rows = kind.sequences * kind.sequence * kind.heads;
  if (packed(kind)) {
    rows = packed_tokens(kind) * kind.heads;
    packed_log_sum_exp = round_up(rows * kFloat, kCudnnAlignment);
    const PackedArrays arrays(DocumentGroups(kind.sequences, kind.sequence));
    packing = round_up(arrays.bytes, kCudnnAlignment);
  }
  if (!kind.backward) return;
  delta = round_up(rows * kFloat, kCudnnAlignment);
  if (!kind.deterministic)
    q_gradient_sums = round_up(rows * kind.head_dim * kFloat, kCudnnAlignment);
  if (packed(kind) && kind.heads != kind.kv_heads) {
    head_gradients = round_up(rows * kind.head_dim * kFloat, kCudnnAlignment);
  }
}

int64_t CudnnWorkspace::bytes() const {
  return delta + q_gradient_sums + 2 * head_gradients + packed_log_sum_exp + packing + library +
         kCudnnAlignment;
}

}  // namespace tessera
