#pragma once

#include <array>

#include "ops/gemm/gemm.h"
#include "ops/support.h"

namespace tessera {

/// The logits of a head, a chunk of tokens at a time: how many tokens a chunk has, the memory it
/// needs, and the loop over the chunks.
class LogitChunks {
 public:
  LogitChunks(const Spec& x, const Spec& weight)
      : tokens_(x.shape[0]),
        hidden_(x.shape[1]),
        vocabulary_(weight.shape[0]),
        dtype_(x.dtype),
        chunk_(std::clamp<int64_t>(tokens_, 1, chunk_for(vocabulary_))) {}
  LogitChunks(const Tensor& x, const Tensor& weight) : LogitChunks(spec_of(x), spec_of(weight)) {}

  int64_t chunk() const { return chunk_; }
  /// The numbers of tokens that occur: a full chunk and the rest.
  std::array<int64_t, 2> sizes() const { return {std::min(chunk_, tokens_), tokens_ % chunk_}; }

  /// Bytes of one chunk of logits in the accumulation type.
  int64_t logit_bytes() const {
    return MemoryLayout::rounded(chunk_ * vocabulary_ * dtype_size(accumulation_dtype(dtype_)));
  }
  /// Logits and the product's own scratch.
  int64_t forward_bytes(Context& context) const {
    int64_t scratch = 0;
    for (const int64_t rows : sizes()) {
      if (rows > 0) scratch = std::max(scratch, product(context, rows).workspace_bytes());
    }
    return logit_bytes() + scratch;
  }

  /// Calls body(first token, tokens, logits) for each chunk. The logits lie at the workspace's
  /// start, the product's scratch behind them.
  template <typename Body>
  void for_each(const Execution& execution, Body&& body) const {
    std::byte* logits = execution.workspace.data();
    const Tensor& x = execution.inputs[0];
    const Tensor& weight = execution.inputs[1];
    for (int64_t first = 0; first < tokens_; first += chunk_) {
      const int64_t rows = std::min(chunk_, tokens_ - first);
      product(execution.context, rows)
          .run(x.slice(first, first + rows).raw(), weight.raw(), logits, logits + logit_bytes());
      body(first, rows, logits);
    }
  }

 private:
  /// About 32 MiB of f32 logits, a multiple of 64 tokens.
  static int64_t chunk_for(int64_t vocabulary) {
    const int64_t tokens = (int64_t{32} << 20) / (std::max<int64_t>(vocabulary, 1) * 4);
    return std::clamp<int64_t>(tokens / 64 * 64, 64, 1024);
  }

  const Gemm& product(Context& context, int64_t rows) const {
    return prepare_gemm(context, {.m = rows,
                                  .n = vocabulary_,
                                  .k = hidden_,
                                  .input = dtype_,
                                  .output = accumulation_dtype(dtype_),
                                  .transpose_b = true,
                                  .threads = context.threads()});
  }

  int64_t tokens_;
  int64_t hidden_;
  int64_t vocabulary_;
  DType dtype_;
  int64_t chunk_;
};

}  // namespace tessera
