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
#include "engine/executor.h"
#include "hardware/device_rate.h"
#include "pipeline/stage_runner.h"
#include "plan/batch_inputs.h"
#include "plan/product_peak.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/bench_step.h"
#include "train/training_step.h"

// measure_kernels() runs the parts of a step one by one: the start, the forward and the backward
// pass of each chunk, the update. TracedParts traces each of them. Operations sums the times by
// operation, and Segments those of the parts of one name.

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

/// The measurements of a step's parts, in the order of a step. Parts of one name are summed.
class Segments {
 public:
  /// Adds the events of a part of a step. There is at least one. `step` is its index among the
  /// measured steps.
  void add(const std::string& name, std::span<const TraceEvent> events, size_t step) {
    auto found = std::ranges::find(segments_, name, &SegmentMeasurement::segment);
    if (found == segments_.end()) {
      found = segments_.insert(found, {.segment = name, .flops = 0, .seconds = {}});
    }
    const TraceEvent& last = events.back();
    found->seconds.resize(step + 1);
    found->seconds[step] += last.start + last.duration - events.front().start;
    if (step > 0) return;  // the FLOPs are the same in every step
    for (const TraceEvent& event : events) found->flops += event.flops;
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

/// Traces the parts of a step, one after the other.
class TracedParts {
 public:
  struct Part {
    std::string name;
    std::vector<TraceEvent> events;
  };

  explicit TracedParts(Executor& executor) : executor_(executor) {}

  void begin(const std::string& name) {
    parts_.push_back({.name = name, .events = {}});
    executor_.set_trace(&trace_.emplace(executor_.runtime()));
  }
  /// Ends the part that was begun last. Does nothing if it has ended.
  void end() {
    if (!trace_) return;
    executor_.set_trace(nullptr);  // waits, and adds the device's times
    parts_.back().events = trace_->step().events;
    trace_.reset();
  }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  Executor& executor_;
  std::optional<Trace> trace_;  // of the part that runs
  std::vector<Part> parts_;
};

/// Returns the configuration of steps of one micro-batch. On one rank all schedules are then the
/// same order: the forward passes of the chunks, then their backward passes.
RunConfig with_one_micro_batch(RunConfig config) {
  config.train.global_batch = config.train.micro_batch;
  config.parallel.schedule.clear();
  config.parallel.consecutive_micro_batches = 0;
  return config;
}

MemoryRate measure_copy(Runtime& runtime) {
  const Accelerator& accelerator = *runtime.accelerator();
  const std::vector<int64_t> sizes =
      device_copy_sizes(accelerator.device(), accelerator.free_bytes());
  return DeviceRates(runtime).measure_copy(sizes.back(), 0.5);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

KernelsReport measure_kernels(const RunConfig& given, const Repeats& repeats) {
  if (given.run.device == Device::cpu) {
    throw Error(
        "run.device is \"cpu\": set it to the device that is measured; of the processor, "
        "`tessera trace summarize` says where a step's time goes");
  }
  const RunConfig config = with_one_micro_batch(given);
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
  step.forward_backward(batches);
  step.update(config.optimizer, {.step = 1, .steps = config.train.steps});
  const StageList list = plan.programs.step_list(/*set=*/0, /*micro_batches=*/1);
  StageRunner runner(executor);
  std::vector<BatchInputs> inputs;  // by chunk, as the programs of the chunks are numbered
  for (const Chunk& chunk : plan.programs.chunks()) {
    inputs.push_back({chunk.batch, vocabulary_size_of(plan.programs.model.parameters)});
  }
  Operations operations;
  Segments segments;
  size_t measured_steps = 0;
  repeats.each([&](bool measured) {
    TracedParts traced(executor);
    const auto run_whole = [&](const char* name, int program) {
      traced.begin(name);
      executor.run({.segment = Segment::whole, .program = program});
      traced.end();
    };
    run_whole("start", plan.programs.start_number());
    runner.run(list, [&](const StageAction& action) {
      traced.end();
      const bool forward = action.action.kind == ActionKind::forward;
      const int program = action.run.program;
      if (forward) {
        inputs[static_cast<size_t>(program)].fill(executor, program, action.run.micro_batch,
                                                  batches.front());
        if (const Value number =
                plan.programs.chunks()[static_cast<size_t>(program)].balance_step) {
          write_scalar(executor, executor.tensor(number, program, action.run.micro_batch), 1);
        }
      }
      traced.begin(forward ? "forward" : "backward");
    });
    traced.end();
    run_whole("update", plan.programs.update_number());
    if (!measured) return;
    for (const auto& [name, events] : traced.parts()) {
      operations.add(events, measured_steps);
      segments.add(name, events, measured_steps);
    }
    ++measured_steps;
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
