#include "train/run_keeper.h"

#include <cmath>
#include <utility>

#include "config/load_config.h"
#include "hardware/gemm_rate.h"

namespace tessera {

namespace {

constexpr const char* kPictureFailed = "loss.svg was not drawn";
constexpr const char* kTraceFailed = "the trace was not written";

}  // namespace

void RunKeeper::write_config(const RunConfig& config) const {
  require_folder();
  write_file(fs::path(config.run.directory) / "config.toml", to_toml(config));
}

void RunKeeper::begin(const Chunk& chunk, const TrainingPosition& position) {
  lock_.keep_folder();
  records_.open(position);
  // Files that cannot be written are reported before the first step, though the run continues.
  console_.attempt(kPictureFailed, [&] { records_.require_picture(); });
  if (run_.config.run.trace_step > position.step) {
    console_.attempt(kTraceFailed,
                     [&] { require_writable(fs::path(run_.config.run.directory) / "trace.json"); });
  }
  if (run_.peak_flops == 0) {
    run_.peak_flops =
        measure_gemm_peak(runtime_.threads(), compute_dtype(run_.config.train.precision));
  }
  const RunPhase& phase = run_.phase_of(position.step);
  console_.announce(chunk, runtime_.target(), phase, run_.flops_of(position.step), run_.peak_flops);
  if (run_.phases.size() > 1) console_.announce_phase(phase, run_.phases.size());
  if (position.step > 0) console_.announce_position(position.step, position.tokens);
}

TrainReport RunKeeper::nothing_to_do(const TrainingPosition& position) {
  lock_.keep_folder();
  records_.complete(position);
  console_.nothing_to_do(position.step, run_.last_step());
  return {.step = position.step, .loss = records_.loss_of(position.step)};
}

void RunKeeper::append(const StepMetrics& metrics) {
  require_folder();
  records_.append(metrics);
}

void RunKeeper::complete(StepMetrics& metrics, int64_t tokens_of_step) const {
  const double flops = run_.flops_of(metrics.step);
  metrics.flops = run_.flops_until(metrics.step);
  metrics.memory_bytes = run_.memory_bytes;
  metrics.tokens_per_second = std::round(static_cast<double>(tokens_of_step) / metrics.seconds);
  metrics.mfu = flops / metrics.seconds / run_.peak_flops;
}

void RunKeeper::tidy(int64_t parameters, int64_t tokens) {
  require_folder();
  console_.attempt("old checkpoints were not removed", [&] { prune_training(run_.config); });
  // A failure does no harm: the plot can be drawn from the metrics later.
  console_.attempt(kPictureFailed, [&] { records_.plot(parameters, tokens); });
}

void RunKeeper::write_trace(StepTrace trace, int64_t step) {
  require_folder();
  console_.attempt(kTraceFailed, [&] {
    const fs::path path =
        records_.write_trace(std::move(trace), run_.peak_flops / run_.mesh.ranks(),
                             run_.phase_of(step).tokens_of_step());
    console_.info(
        "wrote the trace of step {} to {}; tessera trace summarize says where its time went", step,
        path.string());
  });
}

}  // namespace tessera
