#include "plan/step_plan.h"

#include "base/error.h"
#include "base/physical_memory.h"
#include "base/text.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

int64_t input_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const ValueInfo& value : program.values()) {
    if (value.kind == ValueKind::input) bytes += value.spec.bytes();
  }
  return bytes;
}

}  // namespace

StepPlan plan_step(const RunConfig& config, const Target& target) {
  StepPlan plan{.programs = step_programs(config), .memory = {}};
  const Chunk& chunk = plan.programs.chunks.front();
  plan.parameters = chunk.parameters.elements();
  plan.active_parameters = active_parameters(config.model, chunk.parameters.specs());
  plan.tokens = config.train.micro_batch * config.data.context;
  plan.flops = count_flops(chunk.program);
  plan.input_bytes = input_bytes(chunk.program);
  plan.memory = plan_memory(plan.programs.list(), plan.programs.actions(), target);
  return plan;
}

StepPlan plan_step_that_fits(const RunConfig& config) {
  StepPlan plan = plan_step(config, run_target(config));
  const int64_t needed = plan.memory.arena_bytes;
  const int64_t physical = physical_memory();
  if (needed > physical) {
    throw Error(
        "the run needs {} of memory, this machine has {}; lower train.micro_batch or the "
        "model's sizes, or set train.recompute (`tessera explain` shows what takes it)",
        format_bytes(needed), format_bytes(physical));
  }
  return plan;
}

}  // namespace tessera
