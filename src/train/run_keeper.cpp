#include "train/run_keeper.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "config/load_config.h"
#include "hardware/gemm_rate.h"
#include "metrics/plot/plot.h"

namespace tessera {
namespace {

constexpr const char* kPictureFailed = "loss.svg was not drawn";
constexpr const char* kTraceFailed = "the trace was not written";

}  // namespace

void RunKeeper::write_config(const RunConfig& config) const {
  require_folder();
  write_file(fs::path(config.run.directory) / "config.toml", to_toml(config));
}

void RunKeeper::begin(const StepPrograms& programs, const TrainingPosition& position) {
  lock_.keep_folder();
  metrics_.emplace(run_.config.run, metrics_start(position), logger_);
  // Files that cannot be written are reported before the first step, though the run continues.
  console_.attempt(kPictureFailed, [&] { require_writable(file("loss.svg")); });
  if (run_.config.run.trace_step > position.step) {
    console_.attempt(kTraceFailed, [&] { require_writable(file("trace.json")); });
  }
  if (run_.peak_flops == 0) {
    run_.peak_flops =
        measure_gemm_peak(runtime_.threads(), compute_dtype(run_.config.train.precision));
  }
  const RunPhase& phase = run_.phase_of(position.step);
  console_.announce(programs, runtime_.target(), phase, run_.flops_of(position.step),
                    run_.peak_flops);
  if (run_.phases.size() > 1) console_.announce_phase(phase, run_.phases.size());
  if (position.step == 0) return;
  console_.info("going on after step {} ({} tokens)", position.step,
                format_count(static_cast<double>(position.tokens)));
}

TrainReport RunKeeper::nothing_to_do(const TrainingPosition& position) {
  lock_.keep_folder();
  MetricsStart start = metrics_start(position);
  start.steps_follow = false;
  MetricsWriter(run_.config.run, start, logger_).sync();
  console_.info("nothing to do: step {} of {} is done", position.step, run_.last_step());
  return {.step = position.step, .loss = recorded_loss(position.step)};
}

MetricsStart RunKeeper::metrics_start(const TrainingPosition& position) const {
  return {.last_step = position.step,
          .unsaved = position.unsaved_metrics,
          .has_phases = !run_.config.train.phases.empty()};
}

/// Returns the loss of a finished step, or NaN if metrics.jsonl lacks it.
double RunKeeper::recorded_loss(int64_t step) const {
  const fs::path path = file("metrics.jsonl");
  if (!path_exists(path)) return std::nan("");
  const auto metrics = read_metrics(path);
  const auto found = std::ranges::find(metrics, step, &StepMetrics::step);
  return found == metrics.end() ? std::nan("") : found->loss;
}

void RunKeeper::append(const StepMetrics& metrics) {
  require_folder();
  metrics_->append(metrics);
}

void RunKeeper::complete(StepMetrics& metrics, int64_t tokens_of_step) const {
  const double flops = run_.flops_of(metrics.step);
  metrics.flops = run_.flops_until(metrics.step);
  metrics.memory_bytes = run_.memory_bytes;
  metrics.tokens_per_second = std::round(static_cast<double>(tokens_of_step) / metrics.seconds);
  metrics.mfu = flops / metrics.seconds / run_.peak_flops;
}

void RunKeeper::prune_and_plot(int64_t parameters, int64_t tokens) {
  require_folder();
  console_.attempt("old checkpoints were not removed", [&] { prune_training(run_.config); });
  // A failure does no harm: the plot can be drawn from the metrics later.
  console_.attempt(kPictureFailed, [&] { plot(parameters, tokens); });
}

/// Draws loss.svg. Its title has the model's number of parameters and the number of tokens.
void RunKeeper::plot(int64_t parameters, int64_t tokens) const {
  const PlotOptions options{.title = fmt::format("{}: {} parameters, {} tokens",
                                                 fs::path(run_.config.run.directory).string(),
                                                 format_count(static_cast<double>(parameters)),
                                                 format_count(static_cast<double>(tokens)))};
  const RunMetrics run(run_.config.run.directory);
  write_file(file("loss.svg"), plot_metrics({&run, 1}, options));
}

void RunKeeper::write_trace(const GatheredTraces& gathered, int64_t step) {
  require_folder();
  console_.attempt(kTraceFailed, [&] {
    const fs::path path = this->file("trace.json");
    write_file(path, gathered.text);
    console_.info(
        "wrote the trace of step {} to {}; tessera trace summarize says where its time went", step,
        path.string());
    const std::string warning = gathered.warning(path);
    if (!warning.empty()) logger_.warn("{}", warning);
  });
}

}  // namespace tessera
