#include "train/bench_step.h"

#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/text.h"
#include "data/loader.h"
#include "plan/programs.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/training_step.h"

namespace tessera {

std::vector<Batch> random_batches(const RunConfig& config) {
  const CounterRandom random(config.train.seed, "bench tokens");
  const int64_t size = config.train.micro_batch * config.data.context;
  std::vector<Batch> batches;
  for (int64_t i = 0; i < config.train.global_batch / config.train.micro_batch; ++i) {
    Batch batch{.rows = config.train.micro_batch, .context = config.data.context};
    for (int64_t token = 0; token < size; ++token) {
      const uint64_t bits = random.bits(static_cast<uint64_t>(i * size + token));
      batch.tokens.push_back(
          static_cast<int32_t>(bits % static_cast<uint64_t>(config.model.vocabulary_size)));
    }
    complete_batch(batch, -1);  // no token ends a document
    batches.push_back(std::move(batch));
  }
  return batches;
}

namespace {

StepMeasurement measure_step(const RunConfig& config, const Repeats& repeats, Runtime& runtime) {
  const StepPlan plan = plan_step_that_fits(config, runtime.accelerator());
  const BoundTeam team(config.run.bind_threads ? runtime.threads() : 1);
  Executor executor(plan.programs.list(), plan.memory, runtime);
  const ParameterStore store(executor, plan.programs.update_number(),
                             plan.programs.rounding_number(),
                             plan.programs.chunks.front().parameters);
  TrainingStep step(plan.programs, executor, store);
  store.initialize(config.train.seed, runtime.threads());
  const std::vector<Batch> batches = random_batches(config);
  const auto micro_batches = static_cast<double>(batches.size());
  StepMeasurement result{.tokens = config.train.global_batch * config.data.context,
                         .flops = plan.flops.useful() * micro_batches,
                         .parameters = plan.parameters,
                         .active_parameters = plan.active_parameters};
  const int64_t steps = std::max(config.train.steps, repeats.warmup + repeats.measured);
  int64_t done = 0;
  repeats.each([&](bool measured) {
    const Stopwatch watch;
    step.accumulate(batches);
    step.update(config.optimizer, {.step = ++done, .steps = steps});
    const double loss = step.losses().cross_entropy;
    if (!step.updated()) {
      throw Error("step {}: loss {}, gradient norm {}; lower optimizer.learning_rate", done, loss,
                  step.gradient_norm());
    }
    if (measured) result.seconds.push_back(watch.seconds());
    result.losses.push_back(loss);
  });
  result.arena_bytes = plan.memory.arena_bytes;
  result.peak_memory_bytes = peak_resident_bytes();
  return result;
}

}  // namespace

StepMeasurement measure_step(const RunConfig& config, const Repeats& repeats) {
  Runtime runtime(run_target(config));
  use_tuned_products(config, runtime);
  return measure_step(config, repeats, runtime);
}

TunedProducts tune_step_products(
    const RunConfig& config, const TuningBudget& budget,
    const std::function<void(const GemmShape&, size_t done, size_t all)>& progress) {
  Runtime runtime(run_target(config));
  TunedProducts table{.library = device_gemm_library(runtime),
                      .device = runtime.accelerator()->name(),
                      .products = {}};
  measure_step(config, {.warmup = 0, .measured = 1, .before = {}}, runtime);
  const std::vector<GemmShape> shapes = device_gemm_shapes(runtime);
  for (size_t i = 0; i < shapes.size(); ++i) {
    require_no_interrupt();
    progress(shapes[i], i, shapes.size());
    table.products.push_back(tune_device_gemm(runtime, shapes[i], budget));
  }
  return table;
}

std::string step_json(const StepMeasurement& measurement, const MeasuredOn& on) {
  const double median = quantile(measurement.seconds, 0.5);
  nlohmann::ordered_json json{
      {"bench", "step"},
      {"seconds", measurement.seconds},
      {"tokens", measurement.tokens},
      {"tokens_per_second", static_cast<double>(measurement.tokens) / median},
      {"flops", measurement.flops},
      {"mfu", measurement.flops / median / on.gemm_peak},
      {"parameters", measurement.parameters},
      {"active_parameters", measurement.active_parameters},
      {"loss", measurement.losses.back()},
      {"losses", measurement.losses},
      {"arena_bytes", measurement.arena_bytes},
      {"peak_memory_bytes", measurement.peak_memory_bytes}};
  json.update(measured_on_json(on));
  return json.dump() + "\n";
}

std::string step_text(const StepMeasurement& measurement, const MeasuredOn& on) {
  const double median = quantile(measurement.seconds, 0.5);
  return fmt::format(
      "{} parameters, {} active a token; {} tokens and {}FLOP of matrix products a step\n"
      "{}\n"
      "step      {} (10th-90th percentile of {})\n"
      "tokens/s  {}\n"
      "MFU       {:.1f} % of {:.1f} GFLOP/s ({})\n"
      "memory    {} in states and activations, {} the whole process\n",
      format_count(static_cast<double>(measurement.parameters)),
      format_count(static_cast<double>(measurement.active_parameters)), measurement.tokens,
      format_count(measurement.flops), describe(on.processor),
      median_and_spread(measurement.seconds), measurement.seconds.size(),
      format_count(static_cast<double>(measurement.tokens) / median),
      100 * measurement.flops / median / on.gemm_peak, on.gemm_peak * 1e-9, word(on.precision),
      format_bytes(measurement.arena_bytes), format_bytes(measurement.peak_memory_bytes));
}

}  // namespace tessera
