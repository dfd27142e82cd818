#include "train/bench_kernels.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quantile.h"
#include "base/text.h"
#include "config/pipeline_of.h"
#include "engine/executor.h"
#include "hardware/device_rate.h"
#include "plan/product_peak.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/bench_step.h"
#include "train/training_step.h"

// measure_kernels() runs the four parts of a step (start, forward, backward, update) one by one.
// Operations sums the times of their traces by operation, and Segments measures each part.

namespace tessera {
namespace {

/// The measurements of operations by name, over all parts of the measured steps.
class Operations {
 public:
  /// Adds the events of a part of a step. `step` is its index among the measured steps.
  void add(std::span<const TraceEvent> events, size_t step) {
    for (const TraceEvent& event : events) {
      KernelMeasurement& operation = operations_[event.name];
      operation.seconds.resize(step + 1);
      operation.seconds[step] += event.duration;
      if (step > 0) continue;  // what is counted below is the same in every step
      operation.operation = event.name;
      ++operation.nodes;
      operation.flops += event.flops + event.repeated_flops;
      operation.bytes += event.bytes;
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

/// The measurements of a step's parts, in the order of a step.
class Segments {
 public:
  /// Adds the events of a run of a part. There is at least one.
  void add(const char* name, std::span<const TraceEvent> events) {
    auto found = std::ranges::find(segments_, name, &SegmentMeasurement::segment);
    const bool is_new = found == segments_.end();
    if (is_new) found = segments_.insert(found, {.segment = name, .flops = 0, .seconds = {}});
    for (const TraceEvent& event : events) found->flops += is_new ? event.flops : 0;
    const TraceEvent& last = events.back();
    found->seconds.push_back(last.start + last.duration - events.front().start);
  }

  /// Returns the measurements, followed by the sum of the forward and the backward pass.
  std::vector<SegmentMeasurement> with_both_passes() const {
    SegmentMeasurement both{.segment = "forward and backward", .flops = 0, .seconds = {}};
    for (const SegmentMeasurement& segment : segments_) {
      if (segment.segment != "forward" && segment.segment != "backward") continue;
      both.flops += segment.flops;
      both.seconds.resize(segment.seconds.size());
      for (size_t i = 0; i < both.seconds.size(); ++i) both.seconds[i] += segment.seconds[i];
    }
    std::vector<SegmentMeasurement> result = segments_;
    result.push_back(both);
    return result;
  }

 private:
  std::vector<SegmentMeasurement> segments_;
};

MemoryRate measure_copy(Runtime& runtime) {
  const Accelerator& accelerator = *runtime.accelerator();
  const std::vector<int64_t> sizes =
      device_copy_sizes(accelerator.device(), accelerator.free_bytes());
  return DeviceRates(runtime).measure_copy(sizes.back(), 0.5);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

KernelsReport measure_kernels(const RunConfig& config, const Repeats& repeats) {
  if (config.run.device == Device::cpu) {
    throw Error(
        "run.device is \"cpu\": set it to the device that is measured; of the processor, "
        "`tessera trace summarize` says where a step's time goes");
  }
  require_one_chunk(config.parallel, "bench kernels");
  Runtime runtime(run_target(config), open_device(config));
  const std::optional<ProductPeak> peak = configured_peak(config, runtime.accelerator());
  const StepPlan plan = plan_step_that_fits(config, runtime.accelerator());
  require_runnable(plan.programs.list(), runtime);
  use_tuned_products(config, runtime);
  KernelsReport report{.on = measured_on(config.train.precision, runtime, false),
                       .copy = measure_copy(runtime),
                       .tokens = plan.tokens,
                       .parameters = plan.parameters,
                       .arena_bytes = plan.memory.arena_bytes,
                       .segments = {},
                       .operations = {}};
  report.on.hardware_peak = peak;
  Executor executor(plan.programs.list(), plan.memory, runtime);
  const ParameterStore store = store_of(plan.programs, executor);
  TrainingStep step(plan.programs, executor, store);
  store.initialize(config.train.seed, runtime.threads());
  const std::vector<Batch> batches = random_batches(config);
  // A whole step first: it writes scalars that the runs below read, and libraries prepare for it.
  step.forward_backward({&batches.front(), 1});
  step.update(config.optimizer, {.step = 1, .steps = config.train.steps});
  const BatchInputs inputs{plan.programs.chunks().front().batch,
                           vocabulary_size_of(plan.programs.model.parameters)};
  Operations operations;
  Segments segments;
  size_t measured_steps = 0;
  repeats.each([&](bool measured) {
    const auto run = [&](const char* name, const Action& action) {
      Trace trace(runtime);
      executor.set_trace(&trace);
      executor.run(action);
      executor.set_trace(nullptr);  // waits, and adds the device's times
      if (!measured) return;
      operations.add(trace.step().events, measured_steps);
      segments.add(name, trace.step().events);
    };
    run("start", {.segment = Segment::whole, .program = plan.programs.start_number()});
    inputs.fill(executor, 0, 0, batches.front());
    run("forward", {.segment = Segment::forward});
    run("backward", {.segment = Segment::backward});
    run("update", {.segment = Segment::whole, .program = plan.programs.update_number()});
    if (measured) ++measured_steps;
  });
  report.segments = segments.with_both_passes();
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
  Table parts({"part of the step", "seconds (10th-90th percentile)", "MFU"});
  for (const SegmentMeasurement& segment : segments) {
    const double rate = segment.flops / quantile(segment.seconds, 0.5);
    parts.add({segment.segment, median_and_spread(segment.seconds),
               segment.flops > 0 ? mfu_text(rate, on) : ""});
  }
  return fmt::format(
      "{}\n{}, GEMM peak {:.1f} GFLOP/s; copy of {}: {:.1f} GB/s read and written\n"
      "one micro-batch of {} tokens, its operations one by one:\n{}\n{}",
      describe(on), word(on.precision), on.gemm_peak * 1e-9, format_bytes(copy.bytes),
      copy.best * 1e-9, tokens, parts.text(), table.text());
}

std::string KernelsReport::json() const {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson json{{"bench", "kernels"},
                   {"copy", {{"bytes", copy.bytes}, {"best", copy.best}, {"median", copy.median}}}};
  json["tokens"] = tokens;
  json["parameters"] = parameters;
  json["arena_bytes"] = arena_bytes;
  json["segments"] = OrderedJson::array();
  for (const SegmentMeasurement& segment : segments) {
    json["segments"].push_back(
        {{"segment", segment.segment}, {"flops", segment.flops}, {"seconds", segment.seconds}});
    json["segments"].back().update(mfu_json(segment.flops / quantile(segment.seconds, 0.5), on));
  }
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
