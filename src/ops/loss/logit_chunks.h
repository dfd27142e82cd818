#pragma once

#include <algorithm>
#include <optional>

#include "base/round_up.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {

/// The memory for an output head's gradients.
struct HeadGradients {
  Tensor x_gradient;       ///< [tokens, hidden], which is written
  Tensor weight_gradient;  ///< [vocabulary, hidden], which is added to
};

/// Returns the number of tokens in a chunk, at most `tokens`: about 128 MiB of f32 logits, whole 64
/// tokens, from 256 to 1024. Small chunks cost traffic: each chunk reads and writes the whole
/// gradient of the weight, as much traffic as to write the logits of 2 · hidden tokens.
///
/// On a device this traffic is slow compared to the products: on a GPU that computes 200 FLOPs
/// while it moves a byte, it takes as long as the product of the weight's gradient over 800 tokens.
/// So the limit of a chunk there is about 1 GiB of logits, from 2048 to 8192 tokens, and all chunks
/// have about the same number of tokens.
inline int64_t logit_chunk(Device device, int64_t tokens, int64_t vocabulary) {
  const bool on_device = device != Device::cpu;
  const int64_t bytes = int64_t{on_device ? 1024 : 128} << 20;
  const int64_t fitting = bytes / (std::max<int64_t>(vocabulary, 1) * 4) / 64 * 64;
  tokens = std::max<int64_t>(tokens, 1);
  if (!on_device) return std::min(tokens, std::clamp<int64_t>(fitting, 256, 1024));
  const int64_t limit = std::clamp<int64_t>(fitting, 2048, 8192);
  const int64_t chunks = (tokens + limit - 1) / limit;
  return std::min(tokens, round_up((tokens + chunks - 1) / chunks, 64));
}

/// The logits of an output head, for this rank's classes, a chunk of tokens at a time. LogitChunks
/// determines the number of tokens in a chunk, the memory and the matrix products. The gradient of
/// the logits overwrites them, row by row. In bf16 it fills the first half of each row of f32
/// logits.
class LogitChunks {
 public:
  LogitChunks(const Spec& x, const Spec& weight)
      : tokens_(x.shape[0]), hidden_(x.shape[1]), vocabulary_(weight.shape[0]), dtype_(x.dtype) {}

  /// Returns the elements of x's type from one row of the logits' gradient to the next.
  int64_t gradient_stride() const {
    return vocabulary_ * dtype_size(accumulation_dtype(dtype_)) / dtype_size(dtype_);
  }

  /// Returns the largest number of tokens in a chunk.
  int64_t max_rows(Device device) const { return logit_chunk(device, tokens_, vocabulary_); }

  /// Returns the scratch bytes of a run, with or without the products of the gradients. On a device
  /// the products run one after the other in the same memory. On the processor each product has
  /// separate memory, because it keeps its packed weight for a whole section.
  int64_t workspace_bytes(const Target& target, bool gradients) const {
    const int threads = target.threads;
    int64_t largest = 0;
    for (const RowSection& section : sections_on(target.device)) {
      std::vector<GemmShape> products{logits(section.chunk, threads)};
      if (gradients) {
        products.push_back(x_gradient(section.chunk, threads));
        products.push_back(weight_gradient(section.chunk, threads));
      }
      int64_t bytes = 0;
      for (size_t i = 0; i < products.size(); ++i) {
        if (target.device != Device::cpu) {
          bytes = std::max(bytes, device_gemm_workspace_bytes(target, products[i]));
          continue;
        }
        // In the product of the weight's gradient, the rows of A are the classes.
        const int64_t rows = i == 2 ? vocabulary_ : section.end - section.begin;
        bytes += PackedGemm::workspace_bytes(target, products[i], rows);
      }
      largest = std::max(largest, bytes);
    }
    return logit_bytes(target.device) + largest;
  }

  /// Calls visit(tokens) for each chunk.
  template <typename Visit>
  void for_each_size(Device device, Visit&& visit) const {
    for (const RowSection& section : sections_on(device)) {
      for (int64_t first = section.begin; first < section.end; first += section.chunk) {
        visit(section.chunk);
      }
    }
  }

  /// Calls body(first token, tokens, logits) for each chunk. The logits are at the start of the
  /// workspace. If `gradients` is not null, body() must overwrite the logits with their gradient,
  /// from which the products then compute `gradients`.
  template <typename Body>
  void for_each(const Execution& execution, const HeadGradients* gradients, Body&& body) const {
    const Tensor& x = execution.inputs[0];
    std::byte* logits = execution.workspace.data();
    for (const RowSection& section : sections_on(Device::cpu)) {
      Products products(*this, execution.runtime, section, gradients != nullptr);
      products.pack(execution.inputs[1].raw(), logits + logit_bytes(Device::cpu));
      for (int64_t first = section.begin; first < section.end; first += section.chunk) {
        const Tensor rows = x.slice(first, first + section.chunk);
        products.logits.run(rows.raw(), logits);
        body(first, section.chunk, logits);
        if (gradients == nullptr) continue;
        products.x_gradient->run(logits,
                                 gradients->x_gradient.slice(first, first + section.chunk).raw());
        products.weight_gradient->pack(rows.raw(), products.weight_gradient_workspace);
        products.weight_gradient->run(logits, gradients->weight_gradient.raw());
      }
    }
  }

  /// Does what for_each() does, on a device: body() enqueues its work on the execution's stream.
  template <typename Body>
  void for_each_on_device(const Execution& execution, const HeadGradients* gradients,
                          Body&& body) const {
    const Tensor& x = execution.inputs[0];
    const void* const weight = execution.inputs[1].address();
    std::byte* const memory = execution.workspace.data();
    const Device device = execution.runtime.target().device;
    std::byte* const scratch = memory + logit_bytes(device);
    const int threads = execution.runtime.threads();
    for (const RowSection& section : sections_on(device)) {
      for (int64_t first = section.begin; first < section.end; first += section.chunk) {
        const Tensor rows = x.slice(first, first + section.chunk);  // [chunk, hidden]
        device_gemm(execution, logits(section.chunk, threads), rows.address(), weight, memory,
                    scratch);
        body(first, section.chunk, memory);
        if (gradients == nullptr) continue;
        device_gemm(execution, x_gradient(section.chunk, threads), memory, weight,
                    gradients->x_gradient.slice(first, first + section.chunk).address(), scratch);
        device_gemm(execution, weight_gradient(section.chunk, threads), memory, rows.address(),
                    gradients->weight_gradient.address(), scratch);
      }
    }
  }

 private:
  /// The products for the chunks of a section. The weight is packed once for all chunks.
  struct Products {
    Products(const LogitChunks& chunks, Runtime& runtime, const RowSection& section, bool gradients)
        : logits(runtime, chunks.logits(section.chunk, runtime.threads()),
                 section.end - section.begin) {
      if (!gradients) return;
      x_gradient.emplace(runtime, chunks.x_gradient(section.chunk, runtime.threads()),
                         section.end - section.begin);
      weight_gradient.emplace(runtime, chunks.weight_gradient(section.chunk, runtime.threads()),
                              chunks.vocabulary_);
    }

    void pack(const void* weight, std::byte* workspace) {
      logits.pack(weight, workspace);
      workspace += logits.workspace_bytes();
      if (!x_gradient) return;
      x_gradient->pack(weight, workspace);
      weight_gradient_workspace = workspace + x_gradient->workspace_bytes();
    }

    PackedGemm logits;
    std::optional<PackedGemm> x_gradient;  // this and weight_gradient only with gradients
    std::optional<PackedGemm> weight_gradient;
    std::byte* weight_gradient_workspace = nullptr;
  };

  std::vector<RowSection> sections_on(Device device) const {
    return row_sections(tokens_, max_rows(device));
  }

  int64_t logit_bytes(Device device) const {
    return aligned_bytes(max_rows(device) * vocabulary_ * dtype_size(accumulation_dtype(dtype_)));
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

  GemmShape x_gradient(int64_t rows, int threads) const {
    return {.m = rows,
            .n = hidden_,
            .k = vocabulary_,
            .input = dtype_,
            .output = dtype_,
            .lda = gradient_stride(),
            .threads = threads};
  }

  GemmShape weight_gradient(int64_t rows, int threads) const {
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

  int64_t tokens_;
  int64_t hidden_;
  int64_t vocabulary_;
  DType dtype_;
};

}  // namespace tessera
