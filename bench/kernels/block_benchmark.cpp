#include "block_benchmark.h"

#include <memory>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "base/progress.h"

namespace tessera {
namespace {

std::shared_ptr<BlockProgram> make_block(const BlockWriter& write, DType dtype) {
  auto block = std::make_shared<BlockProgram>();
  Builder builder(block->program);
  const std::vector<Value> outputs = write(*block, builder, dtype);
  complete_block(*block, builder, outputs);
  return block;
}

/// Reports the cost of one pass, summed over its nodes.
void report_cost(benchmark::State& state, const Program& program, Phase phase) {
  Cost total;
  for (const Node& node : program.nodes()) {
    if (node.phase != phase) continue;
    const Cost cost = node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
    total.flops += cost.flops;
    total.bytes += cost.bytes;
  }
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["bytes"] = rate(total.bytes);
  if (total.flops > 0) state.counters["FLOPs"] = rate(total.flops);
}

void run_forward(benchmark::State& state, const BlockWriter& write, DType dtype) {
  const auto block = make_block(write, dtype);
  BlockRunner runner(*block, omp_get_max_threads());
  runner.forward();  // makes primitives and touches the memory
  for (auto iteration : state) runner.forward();
  report_cost(state, block->program, Phase::forward);
}

void run_backward(benchmark::State& state, const BlockWriter& write, DType dtype) {
  const auto block = make_block(write, dtype);
  BlockRunner runner(*block, omp_get_max_threads());
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

}  // namespace

void register_block(const std::string& name, const BlockWriter& write) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::string type(dtype_name(dtype));
    benchmark::RegisterBenchmark(
        (name + "/forward/" + type).c_str(),
        [write, dtype](benchmark::State& state) { run_forward(state, write, dtype); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(
        (name + "/backward/" + type).c_str(),
        [write, dtype](benchmark::State& state) { run_backward(state, write, dtype); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace tessera
