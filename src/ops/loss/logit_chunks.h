#pragma once

#include "ops/gemm/gemm.h"
#include "ops/support.h"

namespace tessera {

/// The logits of a head, a chunk of tokens at a time: how many tokens a chunk has, the memory it
/// needs, and its products. The gradient of the logits takes their place, row by row: in bf16 it
/// fills the first half of each row of f32 logits.
class LogitChunks {
 public:
  LogitChunks(const Spec& x, const Spec& weight)
      : tokens_(x.shape[0]),
        hidden_(x.shape[1]),
        vocabulary_(weight.shape[0]),
        dtype_(x.dtype),
        chunk_(std::clamp<int64_t>(tokens_, 1, chunk_for(vocabulary_))) {}

  /// Elements of the compute type from one row of the logits' gradient to the next.
  int64_t gradient_stride() const {
    return vocabulary_ * dtype_size(accumulation_dtype(dtype_)) / dtype_size(dtype_);
  }

  /// Scratch bytes of a run, without or with the gradients' products.
  int64_t workspace_bytes(Context& context, bool gradients) const {
    int64_t scratch = 0;
    for (const int64_t rows : {std::min(chunk_, tokens_), tokens_ % chunk_}) {
      if (rows == 0) continue;
      std::vector<GemmShape> products{logits(rows, context.threads())};
      if (gradients) {
        products.push_back(of_x(rows, context.threads()));
        products.push_back(of_weight(rows, context.threads()));
      }
      for (const GemmShape& product : products) {
        scratch = std::max(scratch, prepare_gemm(context, product).workspace_bytes());
      }
    }
    return logit_bytes() + scratch;
  }

  /// Calls body(first token, tokens, logits) for each chunk; the logits lie at the start of the
  /// workspace.
  template <typename Body>
  void for_each(const Execution& execution, Body&& body) const {
    for (int64_t first = 0; first < tokens_; first += chunk_) {
      const int64_t rows = std::min(chunk_, tokens_ - first);
      run(execution, logits(rows, execution.context.threads()),
          execution.inputs[0].slice(first, first + rows).raw(), execution.inputs[1].raw(),
          execution.workspace.data());
      body(first, rows, execution.workspace.data());
    }
  }

  /// From the gradient of a chunk's logits, which lies in their place: that of the tokens' x into
  /// `x_gradient` [tokens, hidden], and the weight's, which is added into `weight_gradient`.
  void backward(const Execution& execution, int64_t first, int64_t rows, const Tensor& x_gradient,
                const Tensor& weight_gradient) const {
    const std::byte* gradient = execution.workspace.data();
    const int threads = execution.context.threads();
    run(execution, of_x(rows, threads), gradient, execution.inputs[1].raw(),
        x_gradient.slice(first, first + rows).raw());
    run(execution, of_weight(rows, threads), gradient,
        execution.inputs[0].slice(first, first + rows).raw(), weight_gradient.raw());
  }

 private:
  /// About 128 MiB of f32 logits, a multiple of 64 tokens: each chunk adds into the whole gradient
  /// of the weight, which is as much memory traffic as 2 · hidden tokens' logits.
  static int64_t chunk_for(int64_t vocabulary) {
    const int64_t tokens = (int64_t{128} << 20) / (std::max<int64_t>(vocabulary, 1) * 4);
    return std::clamp<int64_t>(tokens / 64 * 64, 256, 1024);
  }

  int64_t logit_bytes() const {
    return MemoryLayout::rounded(chunk_ * vocabulary_ * dtype_size(accumulation_dtype(dtype_)));
  }

  GemmShape logits(int64_t rows, int threads) const {
    return {.m = rows,
            .n = vocabulary_,
            .k = hidden_,
            .input = dtype_,
            .output = accumulation_dtype(dtype_),
            .transpose_b = true,
            .threads = threads};
  }

  GemmShape of_x(int64_t rows, int threads) const {
    return {.m = rows,
            .n = hidden_,
            .k = vocabulary_,
            .input = dtype_,
            .output = dtype_,
            .lda = gradient_stride(),
            .threads = threads};
  }

  GemmShape of_weight(int64_t rows, int threads) const {
    return {.m = vocabulary_,
            .n = hidden_,
            .k = rows,
            .input = dtype_,
            .output = accumulation_dtype(dtype_),
            .transpose_a = true,
            .accumulate = true,
            .lda = gradient_stride(),
            .threads = threads};
  }

  void run(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
           void* c) const {
    prepare_gemm(execution.context, shape).run(a, b, c, execution.workspace.data() + logit_bytes());
  }

  int64_t tokens_;
  int64_t hidden_;
  int64_t vocabulary_;
  DType dtype_;
  int64_t chunk_;
};

}  // namespace tessera
