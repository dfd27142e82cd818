#include "train/bench_kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quantile.h"
#include "base/text.h"
#include "hardware/device_rate.h"
#include "plan/blocks/device_nodes.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/bench_step.h"
#include "train/training_step.h"

namespace tessera {
namespace {

/// Operations by name, over the segments of a step.
class Operations {
 public:
  /// Adds the last run of `nodes`, which belongs to the measured step number `step`, from 0.
  void add(const Program& program, const DeviceNodes& nodes, size_t step) {
    for (size_t i = 0; i < nodes.nodes().size(); ++i) {
      const Node& node = program.nodes()[static_cast<size_t>(nodes.nodes()[i])];
      KernelMeasurement& operation = operations_[std::string(node.operation->name())];
      operation.seconds.resize(step + 1);
      operation.seconds[step] += nodes.seconds()[i];
      if (step > 0) continue;
      const Cost cost =
          node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
      operation.operation = node.operation->name();
      ++operation.nodes;
      operation.flops += cost.flops + cost.repeated_flops;
      operation.bytes += cost.bytes;
    }
  }

  std::vector<KernelMeasurement> longest_first() const {
    std::vector<KernelMeasurement> result;
    for (const auto& [name, operation] : operations_) result.push_back(operation);
    std::ranges::stable_sort(result, std::greater<>(), [](const KernelMeasurement& operation) {
      return quantile(operation.seconds, 0.5);
    });
    return result;
  }

 private:
  std::map<std::string, KernelMeasurement> operations_;
};

MemoryRate measure_copy(Runtime& runtime) {
  const Accelerator& accelerator = *runtime.accelerator();
  const std::vector<int64_t> sizes =
      device_copy_sizes(accelerator.device(), accelerator.free_bytes());
  return DeviceRates(runtime).copy(sizes.back(), 0.5);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

KernelsReport measure_kernels(const RunConfig& config, const Repeats& repeats) {
  if (config.run.device == Device::cpu) {
    throw Error(
        "run.device is \"cpu\": set it to the device that is measured; of the processor, "
        "`tessera trace summarize` says where a step's time goes");
  }
  std::unique_ptr<Accelerator> accelerator = open_device(config);
  const StepPlan plan = plan_step_that_fits(config, accelerator.get());
  Runtime runtime(run_target(config), std::move(accelerator));
  use_tuned_products(config, runtime);
  KernelsReport report{.on = measured_on(config.train.precision, runtime, false),
                       .copy = measure_copy(runtime),
                       .operations = {}};
  Executor executor(plan.programs.list(), plan.memory, runtime);
  const ParameterStore store(executor, plan.programs.update_number(),
                             plan.programs.rounding_number(),
                             plan.programs.chunks.front().parameters);
  TrainingStep step(plan.programs, executor, store);
  store.initialize(config.train.seed, runtime.threads());
  const std::vector<Batch> batches = random_batches(config);
  // The step's own run leaves inputs and states for those below.
  step.accumulate({&batches.front(), 1});
  step.update(config.optimizer, {.step = 1, .steps = config.train.steps});
  DeviceNodes nodes(executor, runtime);
  Operations operations;
  size_t number = 0;
  const BatchInputs inputs(plan.programs.chunks.front().batch,
                           plan.programs.chunks.front().parameters);
  repeats.each([&](bool measured) {
    const auto run = [&](Segment segment, int program) {
      nodes.run(segment, program);
      if (measured) operations.add(executor.program(program), nodes, number);
    };
    run(Segment::whole, plan.programs.start_number());
    inputs.fill(executor, 0, 0, batches.front());
    run(Segment::forward, 0);
    run(Segment::backward, 0);
    run(Segment::whole, plan.programs.update_number());
    if (measured) ++number;
  });
  report.operations = operations.longest_first();
  return report;
}

double KernelsReport::share_of_copy(const KernelMeasurement& operation) const {
  return operation.bytes / quantile(operation.seconds, 0.5) / copy.best;
}

double KernelsReport::share_of_peak(const KernelMeasurement& operation) const {
  return operation.flops / quantile(operation.seconds, 0.5) / on.gemm_peak;
}

std::string KernelsReport::text() const {
  Table table({"operation", "runs", "seconds a step (10th-90th percentile)", "GB/s", "of the copy",
               "GFLOP/s", "of the GEMM peak"});
  for (const KernelMeasurement& operation : operations) {
    const double median = quantile(operation.seconds, 0.5);
    const bool multiplies = operation.flops > 0;
    table.add({operation.operation, fmt::format("{}", operation.nodes),
               median_and_spread(operation.seconds),
               fmt::format("{:.1f}", operation.bytes / median * 1e-9),
               percent(share_of_copy(operation)),
               multiplies ? fmt::format("{:.1f}", operation.flops / median * 1e-9) : "",
               multiplies ? percent(share_of_peak(operation)) : ""});
  }
  return fmt::format(
      "{}\n{}, GEMM peak {:.1f} GFLOP/s; copy of {}: {:.1f} GB/s read and written\n{}",
      describe(on), word(on.precision), on.gemm_peak * 1e-9, format_bytes(copy.bytes),
      copy.best * 1e-9, table.text());
}

std::string KernelsReport::json() const {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson json{{"bench", "kernels"},
                   {"copy", {{"bytes", copy.bytes}, {"best", copy.best}, {"median", copy.median}}}};
  json["operations"] = OrderedJson::array();
  for (const KernelMeasurement& operation : operations) {
    json["operations"].push_back({{"operation", operation.operation},
                                  {"runs", operation.nodes},
                                  {"seconds", operation.seconds},
                                  {"flops", operation.flops},
                                  {"bytes", operation.bytes},
                                  {"share_of_copy", share_of_copy(operation)},
                                  {"share_of_peak", share_of_peak(operation)}});
  }
  json.update(measured_on_json(on));
  return json.dump() + "\n";
}

}  // namespace tessera
