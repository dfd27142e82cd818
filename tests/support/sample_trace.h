#pragma once

#include "pipeline/run_trace.h"

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

/// A step of 10 ms, of which 9 ms are in events: every kind of them once.
inline StepTrace sample_step() {
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

/// The same step of the only rank of a run.
inline RankTrace sample_trace() { return {.step = sample_step()}; }
inline RunTrace sample_run_of(const RankTrace& trace) {
  return {.schedule = {.name = "1f1b", .micro_batches = 1}, .ranks = {trace}};
}

/// A step of one micro-batch on two stages. The first one works for 2 + 3 ms, the second one for
/// 2 + 1 ms meanwhile, within 10 ms. Each also has the sample's operations.
inline RunTrace sample_run() {
  const auto at = [](double from, double to, ScheduleEntry entry) {
    return TimedEntry{.entry = entry, .start = from / 1e3, .duration = (to - from) / 1e3};
  };
  const BoundaryMessage activations{BoundaryKind::activations, 0, 0};
  const BoundaryMessage gradients{BoundaryKind::gradients, 1, 0};
  RunTrace run{.schedule = {.name = "1f1b", .micro_batches = 1}, .ranks = {}};
  for (int rank = 0; rank < 2; ++rank) {
    RankTrace trace{.step = sample_step(), .stage = rank, .chunks = {rank}};
    trace.step.origin.rank = rank;
    const double moved = (rank == 0 ? 0 : 1e-4) - trace.step.start;
    trace.step.start += moved;
    for (TraceEvent& event : trace.step.events) event.start += moved;
    run.ranks.push_back(trace);
  }
  run.ranks[0].list = {at(1, 3, ChunkAction{ActionKind::forward, 0, 0}),
                       at(3, 3.1, MessageEntry{MessageCall::post_send, activations}),
                       at(3.1, 3.2, MessageEntry{MessageCall::post_receive, gradients}),
                       at(3.2, 6.5, MessageEntry{MessageCall::wait_receive, gradients}),
                       at(6.5, 9.5, ChunkAction{ActionKind::backward, 0, 0}),
                       at(9.5, 9.6, MessageEntry{MessageCall::wait_send, activations})};
  run.ranks[1].list = {at(0.2, 0.3, MessageEntry{MessageCall::post_receive, activations}),
                       at(0.3, 3.3, MessageEntry{MessageCall::wait_receive, activations}),
                       at(3.3, 5.3, ChunkAction{ActionKind::forward, 1, 0}),
                       at(5.3, 6.3, ChunkAction{ActionKind::backward, 1, 0}),
                       at(6.3, 6.4, MessageEntry{MessageCall::post_send, gradients}),
                       at(6.4, 6.6, MessageEntry{MessageCall::wait_send, gradients})};
  return run;
}

}  // namespace tessera::testing
