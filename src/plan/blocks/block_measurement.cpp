// Completes the program of a block, and measures its runs. require_memory() checks beforehand that
// the program fits the memory. BlockRunner fills its states and parameters with random numbers.

#include "plan/blocks/block_measurement.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "engine/differentiate.h"
#include "engine/memory_plan.h"
#include "hardware/random_fill.h"
#include "ops/host_target.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

constexpr int kRunsUntilGraphs = 2;  // of an action on a device; the second run captures its graph
constexpr Action kPasses[] = {{.segment = Segment::forward}, {.segment = Segment::backward}};

/// Fills a state or parameter with random numbers, or with the given integers.
void fill(const BlockProgram& block, Value value, const Tensor& target, int threads) {
  const ValueInfo& info = block.program.info(value);
  const bool in_place = target.accelerator() == nullptr;
  const Tensor tensor = in_place ? target : Tensor(target.shape(), target.dtype());
  if (is_floating(tensor.dtype())) {
    const auto given = block.deviations.find(value.id);
    const double deviation = given == block.deviations.end() ? 1 : given->second;
    fill_normal(tensor, info.name, deviation, threads);
  } else {
    const std::vector<int32_t>& integers = block.integers.at(value.id);
    TESSERA_CHECK(static_cast<int64_t>(integers.size()) == tensor.elements(),
                  "{} numbers for {} of {}", integers.size(), info.name, tensor.shape().text());
    std::copy(integers.begin(), integers.end(), tensor.data<int32_t>());
  }
  if (!in_place) upload({tensor.raw(), static_cast<size_t>(tensor.bytes())}, target);
}

/// Fills the states and parameters. Fills each parameter of a unit by itself.
void fill_all(const BlockProgram& block, const Executor& executor, int threads) {
  const Program& program = block.program;
  std::set<int> units;
  for (size_t id = 0; id < program.values().size(); ++id) {
    const Value value{static_cast<int>(id)};
    const Value base = program.base(value);
    if (base == value || program.info(base).kind != ValueKind::parameter) continue;
    units.insert(base.id);
    fill(block, value, executor.tensor(value), threads);
  }
  for (size_t id = 0; id < program.values().size(); ++id) {
    const ValueKind kind = program.values()[id].kind;
    if (kind != ValueKind::parameter && kind != ValueKind::state) continue;
    const Value value{static_cast<int>(id)};
    if (!units.contains(value.id)) fill(block, value, executor.tensor(value), threads);
  }
}

/// Returns the bytes of every value that is not computed. As a double, it cannot overflow.
double given_bytes(const BlockProgram& block) {
  double total = 0;
  for (const ValueInfo& info : block.program.values()) {
    if (info.kind == ValueKind::computed) continue;
    auto bytes = static_cast<double>(dtype_size(info.spec.dtype));
    for (const int64_t dim : info.spec.shape.dims()) bytes *= static_cast<double>(dim);
    total += bytes;
  }
  return total;
}

}  // namespace

void complete_block(BlockProgram& block, Builder& builder, std::span<const Value> outputs) {
  std::vector<Seed> seeds;
  for (const Value output : outputs) {
    builder.output(output);
    const std::string name = fmt::format("output_gradient{}", seeds.size());
    seeds.push_back({output, builder.state(name, builder.spec(output)), SeedKind::boundary});
  }
  differentiate(builder, seeds);
  block.flops = count_flops(block.program);
}

Target block_target(int threads, Device device) {
  Target target = host_target(threads);
  target.device = device;
  return target;
}

int64_t planned_bytes(const BlockProgram& block, const Target& target) {
  const Program* const programs[] = {&block.program};
  return plan_memory(programs, kPasses, target).arena_bytes;
}

void require_memory(const BlockProgram& block, const Runtime& runtime, const std::string& advice) {
  const Accelerator* const accelerator = runtime.accelerator();
  const UsableMemory memory = usable_memory();
  const int64_t free = accelerator == nullptr ? memory.bytes : accelerator->free_bytes();
  double needed = given_bytes(block);
  // Sizes whose given values already exceed the memory may be too large to plan.
  if (needed <= static_cast<double>(free)) {
    needed = static_cast<double>(planned_bytes(block, runtime.target()));
  }
  if (needed <= static_cast<double>(free)) return;
  throw Error("the measurement needs {}B of memory, and {}; {}", format_count(needed),
              accelerator == nullptr ? memory.text()
                                     : fmt::format("{} has {} free", accelerator->name(),
                                                   format_bytes(accelerator->free_bytes())),
              advice);
}

BlockRunner::BlockRunner(const BlockProgram& block, Runtime& runtime)
    : executor_({&block.program}, kPasses, runtime) {
  fill_all(block, executor_, runtime.threads());
}

BlockMeasurement measure_block(const BlockProgram& block, Runtime& runtime,
                               const Repeats& repeats) {
  const BoundTeam team(runtime.threads());
  BlockRunner runner(block, runtime);
  for (int i = 0; i < kRunsUntilGraphs && runtime.accelerator() != nullptr; ++i) {
    runner.forward();
    runner.backward();
  }
  BlockMeasurement result;
  repeats.each([&](bool measured) {
    const Stopwatch watch;
    runner.forward();
    runner.wait();
    const double forward = watch.seconds();
    runner.backward();
    runner.wait();
    const double both = watch.seconds();
    if (!measured) return;
    result.forward_seconds.push_back(forward);
    result.forward_backward_seconds.push_back(both);
  });
  result.arena_bytes = runner.arena_bytes();
  result.peak_memory_bytes = peak_resident_bytes();
  runner.forward();  // its outputs stay in memory until the next pass
  for (const Value output : block.program.outputs()) {
    if (block.program.spec(output).dtype != DType::i32) continue;
    const Tensor host = on_host(runner[output]);
    const auto values = host.values<int32_t>();
    result.integer_outputs.emplace_back(values.begin(), values.end());
  }
  return result;
}

}  // namespace tessera
