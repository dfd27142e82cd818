#include "train/bench_step.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "config/phases.h"
#include "engine/busy_meter.h"
#include "engine/executor.h"
#include "plan/programs.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "train/initial_weights.h"
#include "train/training_step.h"

// measure_step() issues steps as the training loop does: on a device one is in flight while the
// next is issued. tune_step_products() runs a step only to learn which products it has.

namespace tessera {

std::vector<Batch> random_batches(const RunConfig& config) {
  const CounterRandom random(config.train.seed, "bench tokens");
  const int64_t batch_tokens = config.train.micro_batch * config.data.context;
  std::vector<Batch> batches;
  for (int64_t i = 0; i < config.train.global_batch / config.train.micro_batch; ++i) {
    Batch batch{.rows = config.train.micro_batch, .context = config.data.context};
    for (int64_t token = 0; token < batch_tokens; ++token) {
      const uint64_t bits = random.bits(static_cast<uint64_t>(i * batch_tokens + token));
      batch.tokens.push_back(
          static_cast<int32_t>(bits % static_cast<uint64_t>(config.model.vocabulary_size)));
    }
    complete_batch(batch, -1);  // no token ends a document
    batches.push_back(std::move(batch));
  }
  return batches;
}

namespace {

/// Supplies the micro-batches of each step.
class MeasuredBatches {
 public:
  MeasuredBatches(const RunConfig& config, StepTokens tokens)
      : count_(config.train.global_batch / config.train.micro_batch) {
    if (tokens == StepTokens::random) {
      batches_ = random_batches(config);
      return;
    }
    data_ = open_data(config.data);
    loader_.emplace(*data_, LoaderOptions{.rows = config.train.micro_batch,
                                          .vocabulary_size = config.model.vocabulary_size});
  }

  std::span<const Batch> next() {
    if (loader_) batches_ = loader_->next(count_);
    return batches_;
  }

 private:
  int64_t count_;
  std::optional<TrainingData> data_;
  std::optional<Loader> loader_;
  std::vector<Batch> batches_;
};

/// Issues steps and measures them. One step may be in flight: issued, but not finished.
class StepTimer {
 public:
  StepTimer(TrainingStep& step, StepMeasurement& result, bool on_host)
      : step_(step), result_(result), on_host_(on_host) {}

  /// Issues a step, and finishes the one before once the passes of the new one are issued, so that
  /// a device always has work.
  void issue(MeasuredBatches& batches, const OptimizerConfig& optimizer, const WeightUpdate& update,
             bool measured) {
    if (!issued_) watch_ = Stopwatch();
    step_.forward_backward(batches.next());
    if (measured && on_host_) result_.forward_backward_seconds.push_back(watch_.seconds());
    finish();
    step_.update(optimizer, update);
    issued_ = {.number = update.step, .measured = measured, .results = step_.results()};
  }

  /// Waits for the step in flight, if there is one.
  void finish() {
    if (!issued_) return;
    const StepResults results = issued_->results.wait();
    if (!results.updated) {
      throw Error("step {}: loss {}, gradient norm {}; lower optimizer.learning_rate",
                  issued_->number, results.cross_entropy, results.gradient_norm);
    }
    if (issued_->measured) result_.seconds.push_back(watch_.seconds());
    watch_ = Stopwatch();
    result_.losses.push_back(results.cross_entropy);
    result_.expert_load = results.expert_load;
    issued_.reset();
  }

 private:
  struct Issued {
    int64_t number = 0;
    bool measured = false;
    PendingResults results;
  };

  TrainingStep& step_;
  StepMeasurement& result_;
  bool on_host_;  // on the processor, where a call returns when its work is done
  std::optional<Issued> issued_;
  Stopwatch watch_;  // runs since the last step was finished, or the first one issued
};

}  // namespace

StepMeasurement measure_step(const RunConfig& config, const Repeats& repeats, Runtime& runtime,
                             StepTokens tokens) {
  TESSERA_CHECK(config.train.phases.empty(),
                "a step is measured in one phase, not in all of a run");
  const StepPlan plan = plan_step_that_fits(config, runtime.accelerator());
  require_runnable(plan.programs.list(), runtime);
  const BoundTeam team(config.run.bind_threads ? runtime.threads() : 1);
  Executor executor(plan.programs.list(), plan.memory, runtime);
  executor.set_graphs(config.run.graphs);
  const ParameterStore store = store_of(plan.programs, executor);
  TrainingStep step(plan.programs, executor, store);
  if (config.checkpoint.initial.empty()) {
    store.initialize(config.train.seed, runtime.threads());
  } else {
    const RankControl control;
    load_initial_weights(config, store, Logger(), {runtime, control});
  }
  MeasuredBatches batches(config, tokens);
  const auto micro_batches =
      static_cast<double>(config.train.global_batch / config.train.micro_batch);
  StepMeasurement result{.tokens = config.train.global_batch * config.data.context,
                         .flops = plan.flops.useful() * micro_batches,
                         .parameters = plan.parameters,
                         .active_parameters = plan.active_parameters,
                         .prepared_tokens = tokens == StepTokens::prepared};
  const int64_t steps = std::max(config.train.steps, repeats.warmup + repeats.measured);
  const bool keeps_one_in_flight = !executor.on_host() && !repeats.turns;
  std::optional<BusyMeter> meter;
  StepTimer timer(step, result, executor.on_host());
  int64_t issued_steps = 0;
  repeats.each([&](bool measured) {
    if (measured && keeps_one_in_flight && !meter) {
      executor.set_busy_meter(&meter.emplace(*runtime.accelerator()));
    }
    timer.issue(batches, config.optimizer, {.step = ++issued_steps, .steps = steps}, measured);
    if (!keeps_one_in_flight) timer.finish();
  });
  timer.finish();
  executor.set_busy_meter(nullptr);
  if (meter) result.idle_share = meter->finish().idle_share();
  result.arena_bytes = plan.memory.arena_bytes;
  result.peak_memory_bytes = peak_resident_bytes();
  return result;
}

TunedTable tune_step_products(
    const RunConfig& config, const TuningBudget& budget,
    const std::function<void(const std::string& sizes, size_t done, size_t total)>& progress) {
  Runtime runtime(run_target(config), open_device(config));
  TunedTable table{.library = device_gemm_library(runtime),
                   .device = runtime.accelerator()->name(),
                   .products = {},
                   .grouped = {}};
  for (const RunPhase& phase : phases_of(config)) {
    measure_step(phase.config, {.warmup = 0, .measured = 1, .before = {}}, runtime);
  }
  const std::vector<GemmShape> shapes = device_gemm_shapes(runtime);
  const std::vector<GroupedShape> grouped = device_grouped_shapes(runtime);
  const size_t total = shapes.size() + grouped.size();
  size_t done = 0;
  for (const GemmShape& shape : shapes) {
    require_no_interrupt();
    progress(fmt::format("m {}, n {}, k {}", shape.m, shape.n, shape.k), done++, total);
    table.products.push_back(tune_device_gemm(runtime, shape, budget));
  }
  for (const GroupedShape& shape : grouped) {
    require_no_interrupt();
    progress(fmt::format("{} groups, rows {}, weights [{}, {}]", shape.groups, shape.rows,
                         shape.out, shape.in),
             done++, total);
    table.grouped.push_back(tune_device_grouped(runtime, shape, budget));
  }
  return table;
}

std::string step_json(const StepMeasurement& measurement, const MeasuredOn& on,
                      const std::string& phase) {
  const double median = quantile(measurement.seconds, 0.5);
  nlohmann::ordered_json json{
      {"bench", "step"},
      {"seconds", measurement.seconds},
      {"tokens", measurement.tokens},
      {"tokens_per_second", static_cast<double>(measurement.tokens) / median},
      {"flops", measurement.flops},
      {"parameters", measurement.parameters},
      {"active_parameters", measurement.active_parameters},
      {"loss", measurement.losses.back()},
      {"losses", measurement.losses},
      {"arena_bytes", measurement.arena_bytes},
      {"peak_memory_bytes", measurement.peak_memory_bytes},
      {"tokens_from", measurement.prepared_tokens ? "data" : "random"}};
  if (!phase.empty()) json["phase"] = phase;
  if (!measurement.forward_backward_seconds.empty()) {
    json["forward_backward_seconds"] = measurement.forward_backward_seconds;
  }
  if (measurement.expert_load > 0) json["expert_load"] = measurement.expert_load;
  if (measurement.idle_share) json["idle_share"] = *measurement.idle_share;
  json.update(mfu_json(measurement.flops / median, on));
  json.update(measured_on_json(on));
  return json.dump() + "\n";
}

std::string step_text(const StepMeasurement& measurement, const MeasuredOn& on) {
  const double median = quantile(measurement.seconds, 0.5);
  std::string optional_lines;
  if (measurement.expert_load > 0) {
    optional_lines += fmt::format("experts   the fullest has {:.2f} times the balanced load\n",
                                  measurement.expert_load);
  }
  if (measurement.idle_share) {
    optional_lines += fmt::format("idle      {:.2f} % of the time the device waits for the host\n",
                                  100 * *measurement.idle_share);
  }
  return fmt::format(
      "{} parameters, {} active a token; {} {}tokens and {}FLOP of matrix products a step\n"
      "{}\n"
      "step      {} (10th-90th percentile of {})\n"
      "tokens/s  {}\n"
      "MFU       {}\n"
      "memory    {} in states and activations, {} the whole process\n{}",
      format_count(static_cast<double>(measurement.parameters)),
      format_count(static_cast<double>(measurement.active_parameters)), measurement.tokens,
      measurement.prepared_tokens ? "" : "random ", format_count(measurement.flops), describe(on),
      median_and_spread(measurement.seconds), measurement.seconds.size(),
      format_count(static_cast<double>(measurement.tokens) / median),
      mfu_text(measurement.flops / median, on), format_bytes(measurement.arena_bytes),
      format_bytes(measurement.peak_memory_bytes), optional_lines);
}

}  // namespace tessera
