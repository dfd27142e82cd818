#pragma once

#include "engine/step_trace.h"

namespace tessera::testing {

/// A product of two threads, 1 GFLOP.
inline GemmShape sample_product() {
  return {.m = 1000,
          .n = 1000,
          .k = 500,
          .input = DType::bf16,
          .output = DType::bf16,
          .transpose_b = true,
          .lda = 500,
          .ldb = 500,
          .ldc = 1000,
          .threads = 2};
}

/// A product of two threads that adds, 0.5 GFLOP.
inline GemmShape sample_sum() {
  return {.m = 1000,
          .n = 500,
          .k = 500,
          .input = DType::bf16,
          .output = DType::f32,
          .transpose_a = true,
          .accumulate = true,
          .lda = 1000,
          .ldb = 500,
          .ldc = 500,
          .threads = 2};
}

/// A product of one thread, 524288 FLOP.
inline GemmShape sample_tile() {
  return {.m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64, .threads = 1};
}

/// A step of 10 ms, of which 9 lie in events: every kind of them once.
inline StepTrace sample_trace() {
  StepTrace trace{.origin = {.processor = "a processor of 1 TFLOP/s",
                             .features = {"avx2", "amx_bf16"},
                             .threads = 2,
                             .precision = Precision::bf16,
                             .gemm_peak = 1e12,
                             .tokens = 256},
                  .number = 7,
                  .start = 0.5,
                  .duration = 0.010};
  const auto add = [&](TraceEvent event, double milliseconds) {
    const auto& events = trace.events;
    event.start = events.empty() ? trace.start : events.back().start + events.back().duration;
    event.duration = milliseconds / 1e3;
    trace.events.push_back(event);
  };
  add({.name = "next_batches", .block = "data", .phase = "step"}, 1);
  add({.name = "linear",
       .block = "attention",
       .phase = "forward",
       .layer = 0,
       .flops = 1e9,
       .backward_flops = 0.25e9,
       .bytes = 4e6,
       .shape = "[1000, 1000]",
       .products = {{trace.index_of(sample_product()), 1}}},
      2);
  add({.name = "rms_norm", .block = "norm", .phase = "forward", .layer = 0, .bytes = 4e7}, 1);
  add({.name = "attention",
       .block = "attention",
       .phase = "forward",
       .layer = 0,
       .flops = 1e8,
       .bytes = 1e6,
       .products = {{trace.index_of(sample_tile()), 200}}},
      1);
  add({.name = "linear_input_gradient",
       .block = "attention",
       .phase = "backward",
       .layer = 0,
       .flops = 0.8e9,
       .repeated_flops = 0.2e9,
       .bytes = 3e6,
       .products = {{trace.index_of(sample_sum()), 2}}},
      2);
  add({.name = "linear",
       .block = "feed_forward",
       .phase = "recompute",
       .layer = 0,
       .flops = 0.5e9,
       .bytes = 2e6,
       .products = {{trace.index_of(sample_sum()), 1}}},
      1);
  add({.name = "adamw", .block = "optimizer", .phase = "step", .bytes = 2e8}, 1);
  return trace;
}

}  // namespace tessera::testing
