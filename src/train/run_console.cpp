#include "train/run_console.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/usable_cores.h"
#include "hardware/accelerator_facts.h"
#include "model/model.h"
#include "ops/gemm/gemm_plan.h"
#include "plan/product_peak.h"

namespace tessera {
namespace {

/// Returns "2 threads", or "4 ranks (2 tensor x 2 data) on 4 threads".
std::string ranks_text(const Mesh& mesh, const Target& target) {
  std::string threads =
      fmt::format("{} {}", target.threads, target.threads == 1 ? "thread" : "threads");
  if (mesh.ranks() == 1) return threads;
  return fmt::format("{} ranks ({}) on {}", mesh.ranks(), mesh.text(), threads);
}

}  // namespace

void RunConsole::announce(const StepPrograms& programs, const Target& target, const RunPhase& phase,
                          double flops, double peak_flops) {
  const DType compute = compute_dtype(config_.train.precision);
  const ParameterList& parameters = programs.model.parameters;
  info(
      "{} parameters, {} active a token; {} tokens a step; {} of matrix products a step; "
      "peak {}FLOP/s ({}, {})",
      format_count(static_cast<double>(parameters.elements())),
      format_count(static_cast<double>(active_parameters(config_.model, parameters.specs()))),
      format_count(static_cast<double>(phase.tokens_of_step())), format_count(flops) + "FLOP",
      format_count(peak_flops), word(config_.train.precision),
      ranks_text(programs.mesh_rank().mesh, target));
  if (target.device == Device::cpu && !multiplies(target, compute)) {
    info(
        "this processor has no matrix products in {} that are faster than those in fp32: their "
        "operands are widened to fp32; train.precision = \"fp32\" may be faster here",
        word(config_.train.precision));
  }
  const UsableCores cores = usable_cores();
  if (target.device == Device::cpu && config_.run.threads > cores.count) {
    info("run.threads is {}, and this process may use {}: the threads take turns",
         config_.run.threads, cores.text());
  }
  if (target.device == Device::emulated) info("{}", kEmulatedFigures);
  if (rounds_to_tf32(config_, target.device) && config_.model.mixture()) {
    info(
        "train.tf32 leaves the products of experts as they are: a plain kernel computes them in "
        "fp32, and is slow");
  }
}

void RunConsole::announce_phase(const RunPhase& phase, size_t phases) {
  info("{} ({} of {}): steps {} to {}, {} sequences of {} tokens a step, rope_theta {}", phase.name,
       phase.number, phases, phase.first_step, phase.last_step, phase.config.train.global_batch,
       phase.config.data.context, phase.config.model.rope_theta);
}

void RunConsole::show(const StepMetrics& metrics, int64_t last_step) {
  if (!options_.progress) return;
  // The time between steps includes evaluations and checkpoints. The mean is over some 20 steps.
  const double seconds = since_last_step_.seconds();
  since_last_step_ = Stopwatch();
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.95 * step_seconds_ + 0.05 * seconds;
  const double seconds_left = step_seconds_ * static_cast<double>(last_step - metrics.step);
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  gradient norm {:.2f}  {} tokens/s  MFU {:.0f}%  {}", metrics.step,
      last_step, metrics.loss, metrics.grad_norm, format_count(metrics.tokens_per_second),
      100 * metrics.mfu, format_bytes(metrics.memory_bytes));
  if (metrics.held_out_loss) line += fmt::format("  held-out {:.4f}", *metrics.held_out_loss);
  progress_.show(line + fmt::format("  {} left", format_duration(seconds_left)),
                 metrics.step == last_step);
}

void RunConsole::finish(const TrainReport& report, const std::vector<SourceMetrics>& sources) {
  if (sources.size() > 1) {
    Table table({"source", "tokens", "epochs"});
    for (const SourceMetrics& source : sources) {
      table.add(
          {source.name, fmt::format("{}", source.tokens), fmt::format("{:.3f}", source.epochs)});
    }
    info("the run's tokens came from\n{}", table.text());
  }
  if (report.interrupted) {
    info("interrupted: saved step {}; the same command with --resume goes on", report.step);
  } else {
    info("done: step {}, loss {:.4f}; {} holds metrics.jsonl, loss.svg and checkpoints",
         report.step, report.loss, config_.run.directory);
  }
}

}  // namespace tessera
