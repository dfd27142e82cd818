#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/in_process/run_mesh.h"
#include "comm/process_groups.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "engine/count_flops.h"
#include "engine/require_runnable.h"
#include "hardware/device_rate.h"
#include "hardware/gemm_rate.h"
#include "plan/product_peak.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/rank_trainer.h"
#include "train/run_keeper.h"
#include "train/run_lock.h"
#include "train/same_run.h"
#include "train/shared_cores.h"
#include "train/training_state.h"

namespace tessera {
namespace {

/// Throws Error if the folder already holds a run, which must not be overwritten by mistake.
void require_fresh(const RunConfig& config) {
  if (holds_checkpoints(config)) {
    throw Error(
        "{} already holds a run; go on with it by --resume, remove it, or choose another "
        "run.directory",
        config.run.directory);
  }
}

void require_one_device(const RunConfig& config, int ranks) {
  if (ranks == 1 || config.run.device == Device::cpu) return;
  throw Error(
      "--ranks is {} and run.device is \"{}\": several ranks compute on the processor in this "
      "build; give --ranks 1, or run.device \"cpu\"",
      ranks, word(config.run.device));
}

/// The useful FLOPs of a step, those of one rank that does all of it: what ranks compute twice does
/// not count.
double step_flops(const RunConfig& config, const StepPlan& of_first) {
  if (of_first.place().mesh.ranks() == 1) {
    return of_first.flops.useful() * static_cast<double>(of_first.micro_batches);
  }
  const Chunk whole = write_training(config.model, compute_dtype(config.train.precision),
                                     {.sequences = config.train.micro_batch,
                                      .context = config.data.context,
                                      .document_mask = config.data.document_mask},
                                     recompute_of(config.train.recompute));
  return count_flops(whole.program).useful() *
         static_cast<double>(config.train.global_batch / config.train.micro_batch);
}

/// What the ranks share. `peak_flops` is the known rate of matrix products, or 0; `plan` is that of
/// one of them, and `memory_bytes` what the arenas of all take.
SharedRun shared_run(const RunConfig& config, const Mesh& mesh, double peak_flops,
                     const StepPlan& plan, int64_t memory_bytes) {
  return {.config = config,
          .mesh = mesh,
          .data = open_data(config.data),
          .flops = step_flops(config, plan),
          .peak_flops = peak_flops,
          .memory_bytes = memory_bytes};
}

/// Gives the device its table of products. Returns the rate of matrix products: `known`, or if that
/// is 0 a device's, measured while its memory is free. One rank on the processor measures it when
/// the run begins.
double prepare_products(const RunConfig& config, double known, Runtime& runtime) {
  use_tuned_products(config, runtime);
  if (known > 0 || runtime.accelerator() == nullptr) return known;
  return measure_gemm_peak(runtime, compute_dtype(config.train.precision));
}

/// Trains on the ranks of a mesh, as threads of this process.
TrainReport train_on_ranks(SharedRun& run, std::vector<StepPlan> plans, const TrainOptions& options,
                           RunLock& lock, const Logger& logger) {
  if (run.peak_flops == 0) {
    run.peak_flops = measure_gemm_peak(static_cast<int>(run.config.run.threads),
                                       compute_dtype(run.config.train.precision));
  }
  World world(run.mesh.ranks(), std::chrono::seconds(run.config.run.rank_timeout));
  TrainReport report;
  run_mesh(world, run.mesh, [&](RankGroups& groups) {
    const int rank = groups.rank();
    const RankControl control(groups);
    Runtime runtime(run_target(run.config, nullptr, run.mesh.ranks()), nullptr);
    runtime.join(groups);
    std::optional<RunKeeper> keeper;
    if (control.first()) keeper.emplace(run, options, runtime, lock, logger);
    const Logger own_logger = control.first() ? logger : Logger::silent();
    RankTrainer trainer(run, std::move(plans[static_cast<size_t>(rank)]),
                        {.ranks = run.mesh.ranks(), .place = rank}, runtime, control,
                        keeper ? &*keeper : nullptr, own_logger);
    const TrainReport of_rank = trainer.run(options);
    if (control.first()) report = of_rank;
  });
  return report;
}

/// The sum of a number over all ranks, which each of them gets.
double sum_over(double own, const RankControl& control) {
  const std::array<uint64_t, 1> bits{std::bit_cast<uint64_t>(own)};
  double sum = 0;
  for (const uint64_t of_rank : control.gather(bits)) sum += std::bit_cast<double>(of_rank);
  return sum;
}

/// The plan of a rank that is a process.
struct ProcessPlan {
  StepPlan step;
  int64_t memory_bytes = 0;  ///< of the arenas of all ranks
};

/// Plans it. Throws Error on all ranks if those of one machine do not fit into its memory.
ProcessPlan plan_process(const RunConfig& config, const MeshRank& place, const Target& target,
                         const Processes& processes, const RankControl& control) {
  std::optional<StepPlan> plan;
  control.together([&] { plan = plan_step(config, target, place); });
  const std::array<uint64_t, 3> own{static_cast<uint64_t>(plan->memory.arena_bytes),
                                    static_cast<uint64_t>(plan->memory.kept_bytes),
                                    static_cast<uint64_t>(beside_arena_bytes(*plan))};
  const std::vector<uint64_t> all = control.gather(own);
  MemoryNeeds needs;
  for (const int rank : processes.ranks_here()) {
    const auto of_rank = std::span(all).subspan(static_cast<size_t>(rank) * own.size());
    ++needs.ranks;
    needs.arenas += static_cast<int64_t>(of_rank[0]);
    needs.states += static_cast<int64_t>(of_rank[1]);
    needs.beside += static_cast<int64_t>(of_rank[2]);
  }
  control.together([&] { require_fits(config, needs); });
  int64_t memory_bytes = 0;
  for (size_t at = 0; at < all.size(); at += own.size()) {
    memory_bytes += static_cast<int64_t>(all[at]);
  }
  return {std::move(*plan), memory_bytes};
}

/// Trains as one of several processes. All of them go through it, and meet at its steps.
TrainReport train_as_process(const RunConfig& config, const RunConfig& resolved, const Mesh& mesh,
                             const TrainOptions& options, const Logger& logger) {
  Processes& processes = *options.processes;
  processes.set_timeout(std::chrono::seconds(resolved.run.rank_timeout));
  const int rank = processes.rank();
  RankGroups groups = groups_of(mesh, processes);
  const RankControl control = control_of(groups, processes);
  require_same_start(config, processes, control);
  const SharedCores cores =
      find_shared_cores(processes.hosts()[static_cast<size_t>(rank)], control);
  Runtime runtime(run_target(resolved, nullptr, cores.ranks), nullptr);
  runtime.join(groups);
  ProcessPlan plan = plan_process(resolved, {mesh, rank}, runtime.target(), processes, control);
  std::optional<RunLock> lock;
  control.on_first([&] {
    lock.emplace(resolved.run.directory, logger);
    if (!options.resume) require_fresh(resolved);
  });
  require_shared_folder(resolved.run.directory, control);
  const double known = configured_peak(resolved, nullptr).value_or(ProductPeak{}).flops;
  std::optional<SharedRun> run;
  control.together([&] { run = shared_run(resolved, mesh, known, plan.step, plan.memory_bytes); });
  require_same_data(run->data, processes, control);
  if (known == 0) {
    const double own =
        measure_gemm_peak(runtime.threads(), compute_dtype(resolved.train.precision));
    run->peak_flops = sum_over(own, control);
  }
  std::optional<RunKeeper> keeper;
  if (control.first()) keeper.emplace(*run, options, runtime, *lock, logger);
  const Logger own_logger = control.first() ? logger : Logger::silent();
  return RankTrainer(*run, std::move(plan.step), cores, runtime, control,
                     keeper ? &*keeper : nullptr, own_logger)
      .run(options);
}

}  // namespace

TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger) {
  RunConfig resolved = resolve(config);
  if (options.processes != nullptr) {
    const std::string why = set_node_ranks(resolved.parallel, options.processes->hosts());
    if (!why.empty() && options.processes->rank() == 0) {
      logger.warn("gradients are summed over all machines in one step: {}", why);
    }
  }
  const Mesh mesh =
      mesh_of(resolved, options.processes != nullptr ? options.processes->ranks() : options.ranks);
  require_one_device(resolved, mesh.ranks());
  if (options.processes != nullptr) {
    return train_as_process(config, resolved, mesh, options, logger);
  }
  std::unique_ptr<Accelerator> accelerator = options.open(resolved);
  double peak_flops = configured_peak(resolved, accelerator.get()).value_or(ProductPeak{}).flops;
  std::vector<StepPlan> plans = plan_steps_that_fit(resolved, mesh, accelerator.get());
  Runtime runtime(run_target(resolved), std::move(accelerator));
  require_runnable(plans.front().programs.list(), runtime);
  RunLock lock(resolved.run.directory, logger);
  if (!options.resume) require_fresh(resolved);
  peak_flops = prepare_products(resolved, peak_flops, runtime);
  int64_t memory_bytes = 0;
  for (const StepPlan& plan : plans) memory_bytes += plan.memory.arena_bytes;
  SharedRun run = shared_run(resolved, mesh, peak_flops, plans.front(), memory_bytes);
  if (mesh.ranks() > 1) return train_on_ranks(run, std::move(plans), options, lock, logger);
  const RankControl control;
  RunKeeper keeper(run, options, runtime, lock, logger);
  return RankTrainer(run, std::move(plans.front()), {}, runtime, control, &keeper, logger)
      .run(options);
}

}  // namespace tessera
