#include "train/run_records.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "hardware/processor.h"
#include "metrics/plot/plot.h"

namespace tessera {

MetricsStart RunRecords::start_at(const TrainingPosition& position) const {
  return {.last_step = position.step,
          .unsaved = position.unsaved_metrics,
          .phases = !config_.train.phases.empty()};
}

void RunRecords::open(const TrainingPosition& position) {
  writer_.emplace(config_.run, start_at(position), logger_);
}

void RunRecords::complete(const TrainingPosition& position) {
  MetricsStart start = start_at(position);
  start.steps_follow = false;
  MetricsWriter(config_.run, start, logger_).sync();
}

double RunRecords::loss_of(int64_t step) const {
  const fs::path path = file("metrics.jsonl");
  if (!path_exists(path)) return std::nan("");
  const auto metrics = read_metrics(path);
  const auto found = std::ranges::find(metrics, step, &StepMetrics::step);
  return found == metrics.end() ? std::nan("") : found->loss;
}

void RunRecords::plot(int64_t parameters, int64_t tokens) const {
  const PlotOptions options{.title = fmt::format("{}: {} parameters, {} tokens",
                                                 fs::path(config_.run.directory).string(),
                                                 format_count(static_cast<double>(parameters)),
                                                 format_count(static_cast<double>(tokens)))};
  const RunMetrics run(config_.run.directory);
  write_file(file("loss.svg"), plot_metrics({&run, 1}, options));
}

fs::path RunRecords::write_trace(StepTrace step, double gemm_peak, int64_t tokens) const {
  const Processor processor = this_processor(runtime_.threads());
  step.origin = {.processor = processor.name,
                 .features = processor.features,
                 .threads = runtime_.threads(),
                 .precision = config_.train.precision,
                 .gemm_peak = gemm_peak,
                 .tokens = tokens,
                 .device = config_.run.device};
  if (const Accelerator* const accelerator = runtime_.accelerator()) {
    step.origin.accelerator = accelerator->name();
  }
  fs::path path = file("trace.json");
  tessera::write_trace(path, step);
  return path;
}

}  // namespace tessera
