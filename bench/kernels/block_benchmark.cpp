#include "block_benchmark.h"

#include <memory>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include "base/progress.h"
#include "hardware/gemm_sweep.h"
#include "program/program.h"

namespace tessera {
namespace {

constexpr DType kTypes[] = {DType::bf16, DType::f32};

/// The program of a block, with or without a backward pass.
std::shared_ptr<BlockProgram> make_block(const BlockWriter& write, DType dtype, bool backward) {
  auto block = std::make_shared<BlockProgram>();
  Builder builder(block->program);
  const std::vector<Value> outputs = write(*block, builder, dtype);
  if (backward) complete_block(*block, builder, outputs);
  return block;
}

/// Reports the cost of one pass, summed over its nodes.
void report_cost(benchmark::State& state, const Program& program, Phase phase) {
  Cost total;
  for (const Node& node : program.nodes()) {
    if (node.phase != phase) continue;
    const Cost cost = node_cost(program, node);
    total.flops += cost.flops;
    total.bytes += cost.bytes;
  }
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["bytes"] = rate(total.bytes);
  if (total.flops > 0) state.counters["FLOPs"] = rate(total.flops);
}

void run_forward(benchmark::State& state, const BlockWriter& write, DType dtype, bool backward) {
  const auto block = make_block(write, dtype, backward);
  Runtime runtime(block_target(omp_get_max_threads()));
  BlockRunner runner(*block, runtime);
  runner.forward();  // makes primitives and touches the memory
  for (auto iteration : state) runner.forward();
  report_cost(state, block->program, Phase::forward);
}

void run_backward(benchmark::State& state, const BlockWriter& write, DType dtype) {
  const auto block = make_block(write, dtype, true);
  Runtime runtime(block_target(omp_get_max_threads()));
  BlockRunner runner(*block, runtime);
  runner.forward();
  runner.backward();
  for (auto iteration : state) {
    runner.forward();
    const Stopwatch watch;
    runner.backward();
    state.SetIterationTime(watch.seconds());
  }
  report_cost(state, block->program, Phase::backward);
}

void register_one_forward(const std::string& name, const BlockWriter& write, DType dtype,
                          bool backward) {
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { run_forward(state, write, dtype, backward); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Whether a benchmark of that type can run here; says so where it cannot.
bool can_run(const std::string& name, DType dtype, Products products) {
  if (products == Products::none || has_gemm(dtype)) return true;
  fmt::print(stderr, "{}/{} is left out: this processor has no {} matrix product\n", name,
             dtype_name(dtype), dtype_name(dtype));
  return false;
}

}  // namespace

void register_forward(const std::string& name, const BlockWriter& write, Products products) {
  for (const DType dtype : kTypes) {
    if (!can_run(name, dtype, products)) continue;
    register_one_forward(fmt::format("{}/{}", name, dtype_name(dtype)), write, dtype, false);
  }
}

void register_block(const std::string& name, const BlockWriter& write, Products products) {
  for (const DType dtype : kTypes) {
    if (!can_run(name, dtype, products)) continue;
    register_one_forward(fmt::format("{}/forward/{}", name, dtype_name(dtype)), write, dtype, true);
    benchmark::RegisterBenchmark(
        fmt::format("{}/backward/{}", name, dtype_name(dtype)).c_str(),
        [=](benchmark::State& state) { run_backward(state, write, dtype); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace tessera
