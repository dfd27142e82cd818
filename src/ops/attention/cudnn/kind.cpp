#include "ops/attention/cudnn/kind.h"

#include <fmt/core.h>

#include "base/round_up.h"

namespace tessera {
namespace {

constexpr int64_t kTile = 128;  // the queries or keys of a tile, or fewer
constexpr int64_t kBFloat16 = 2, kFloat = 4;

/// What cuDNN keeps in its workspace. The deterministic backward pass writes the gradients of all
/// scores, in whole tiles, and sums them over the keys afterwards. Both backward passes write the
/// gradients of keys and values for each query head before they are summed over a group.
int64_t library_bytes(const CudnnAttentionKind& kind) {
  int64_t bytes = kCudnnAlignment;
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

}  // namespace

std::string text(const CudnnAttentionKind& kind) {
  return fmt::format("{} of {} sequences of {} tokens, {} heads on {} of {}, bf16{}{}",
                     kind.backward ? "attention_gradient" : "attention", kind.sequences,
                     kind.sequence, kind.heads, kind.kv_heads, kind.head_dim,
                     kind.documents ? ", documents" : "",
                     kind.backward && kind.deterministic ? ", deterministic" : "");
}

CudnnWorkspace::CudnnWorkspace(const CudnnAttentionKind& kind) : library(library_bytes(kind)) {
  if (!kind.backward) return;
  const int64_t rows = kind.sequences * kind.heads * kind.sequence;
  delta = round_up(rows * kFloat, kCudnnAlignment);
  if (!kind.deterministic) of_q_sum = round_up(rows * kind.head_dim * kFloat, kCudnnAlignment);
}

int64_t CudnnWorkspace::bytes() const { return delta + of_q_sum + library + kCudnnAlignment; }

}  // namespace tessera
