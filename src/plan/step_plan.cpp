#include "plan/step_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "state/parameter_store.h"

namespace tessera {
namespace {

/// Allocates the program's inputs, in the order of their declaration.
int64_t allocate_inputs(const Program& program, MemoryLayout& layout) {
  const int64_t before = layout.in_use();
  for (const ValueInfo& value : program.values()) {
    if (value.kind == ValueKind::input) layout.allocate(value.spec.bytes());
  }
  return layout.in_use() - before;
}

}  // namespace

StepPlan plan_step(const RunConfig& config, const Target& target) {
  StepPlan plan{.training = training_program(config), .memory = {}};
  const auto& specs = plan.training.parameters.specs();
  plan.parameters = plan.training.parameters.elements();
  plan.active_parameters = active_parameters(config.model, specs);
  plan.tokens = config.train.micro_batch * config.data.context;
  plan.flops = count_flops(plan.training.program);

  MemoryLayout layout;
  for (const int64_t bytes : ParameterStore::allocation_sizes(specs)) layout.allocate(bytes);
  plan.state_bytes = layout.in_use();
  plan.input_bytes = allocate_inputs(plan.training.program, layout);
  if (config.train.evaluate_every == 0) {
    plan.memory = plan_memory(plan.training.program, target, layout);
    plan.peak_bytes = plan.memory.peak_bytes;
    plan.extent_bytes = plan.memory.left.extent();
    return plan;
  }
  const TrainingProgram evaluation = evaluation_program(config);
  plan.input_bytes += allocate_inputs(evaluation.program, layout);
  plan.memory = plan_memory(plan.training.program, target, layout);
  // An evaluation runs while the last micro-batch's outputs are in use.
  const MemoryPlan evaluated = plan_memory(evaluation.program, target, plan.memory.left);
  plan.peak_bytes = std::max(plan.memory.peak_bytes, evaluated.peak_bytes);
  plan.extent_bytes = evaluated.left.extent();
  return plan;
}

StepPlan plan_step_that_fits(const RunConfig& config) {
  StepPlan plan = plan_step(config, host_target(static_cast<int>(config.run.threads)));
  const int64_t physical = physical_memory();
  if (plan.peak_bytes > physical) {
    throw Error(
        "the run needs {} of memory, this machine has {}; lower train.micro_batch or the "
        "model's sizes, or set train.recompute (`tessera explain` shows what takes it)",
        format_bytes(plan.peak_bytes), format_bytes(physical));
  }
  return plan;
}

}  // namespace tessera
