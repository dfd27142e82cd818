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
#include "comm/connect_devices.h"
#include "comm/in_process/run_mesh.h"
#include "comm/process_groups.h"
#include "config/effects.h"
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

/// Returns the useful FLOPs of a step of a phase. They are those of one rank that does all the
/// work, so work that several ranks repeat counts once. `first_rank` is the work of the first rank.
double step_flops(const RunConfig& config, const Mesh& mesh, const PhaseWork& first_rank) {
  if (mesh.ranks() == 1) {
    return first_rank.flops.useful() * static_cast<double>(first_rank.micro_batches);
  }
  const Chunk whole = write_training(config.model, compute_dtype(config.train.precision),
                                     {.sequences = config.train.micro_batch,
                                      .context = config.data.context,
                                      .document_mask = config.data.document_mask},
                                     recompute_of(config.train.recompute));
  return count_flops(whole.program).useful() *
         static_cast<double>(config.train.global_batch / config.train.micro_batch);
}

/// Returns what the ranks share. `peak_flops` is the known rate of matrix products, or 0; `plan` is
/// that of one rank, and `memory_bytes` the size of all ranks' arenas.
SharedRun shared_run(const RunConfig& config, const Mesh& mesh, double peak_flops,
                     const StepPlan& plan, int64_t memory_bytes) {
  std::vector<RunPhase> phases = phases_of(config);
  std::vector<double> flops;
  for (size_t i = 0; i < phases.size(); ++i) {
    flops.push_back(step_flops(phases[i].config, mesh, plan.phases[i]));
  }
  RunData data(config, phases);
  return {.config = config,
          .phases = std::move(phases),
          .mesh = mesh,
          .data = std::move(data),
          .flops = std::move(flops),
          .peak_flops = peak_flops,
          .memory_bytes = memory_bytes};
}

/// Gives the device its table of products and returns the rate of its matrix products. This is
/// `known` or, if that is 0, measured now on a device, while its memory is free. On the processor
/// one rank measures it when the run begins.
double prepare_products(const RunConfig& config, double known, Runtime& runtime) {
  use_tuned_products(config, runtime);
  if (known > 0 || runtime.accelerator() == nullptr) return known;
  return measure_gemm_peak(runtime, compute_dtype(config.train.precision));
}

/// Returns the runtime of a rank.
Runtime runtime_of_rank(const RunConfig& config, std::unique_ptr<Accelerator> accelerator,
                        int sharing_ranks) {
  const Target target = run_target(config, accelerator.get(), sharing_ranks);
  return Runtime(target, std::move(accelerator));
}

/// Connects a rank's operations with the other ranks, on their devices if the run has any.
void join_ranks(const RunConfig& config, RankGroups& groups, Runtime& runtime) {
  runtime.join(groups);
  if (runtime.accelerator() == nullptr) return;
  groups.use_devices(*runtime.accelerator(), std::chrono::seconds(config.run.rank_timeout));
}

/// Trains on the ranks of a mesh, as threads of this process.
TrainReport train_on_ranks(SharedRun& run, std::vector<StepPlan> plans, const TrainOptions& options,
                           RunLock& lock, const Logger& logger) {
  if (run.config.run.device != Device::cpu) {
    run.peak_flops *= run.mesh.ranks();
  } else if (run.peak_flops == 0) {
    run.peak_flops = measure_gemm_peak(static_cast<int>(run.config.run.threads),
                                       compute_dtype(run.config.train.precision));
  }
  World world(run.mesh.ranks(), std::chrono::seconds(run.config.run.rank_timeout));
  TrainReport report;
  run_mesh(world, run.mesh, [&](RankGroups& groups) {
    const int rank = groups.rank();
    const RankControl control(groups);
    const int ranks = run.mesh.ranks();
    Runtime runtime = runtime_of_rank(run.config, options.open(run.config, {rank, ranks}), ranks);
    join_ranks(run.config, groups, runtime);
    use_tuned_products(run.config, runtime);
    std::optional<RunKeeper> keeper;
    if (control.first()) keeper.emplace(run, options, runtime, lock, logger);
    const Logger own_logger = control.first() ? logger : Logger::silent();
    RankTrainer trainer(run, std::move(plans[static_cast<size_t>(rank)]),
                        {.ranks = run.mesh.ranks(), .index = rank}, runtime, control,
                        keeper ? &*keeper : nullptr, own_logger);
    const TrainReport rank_report = trainer.run(options);
    if (control.first()) report = rank_report;
  });
  return report;
}

/// Returns the sum of a number over all ranks.
double sum_over(double own, const RankControl& control) {
  const std::array<uint64_t, 1> bits{std::bit_cast<uint64_t>(own)};
  double sum = 0;
  for (const uint64_t rank_bits : control.gather(bits)) sum += std::bit_cast<double>(rank_bits);
  return sum;
}

/// Returns the FLOP/s of matrix products of all ranks together: configured, or measured. Gives
/// devices their tables of products.
double peak_of_processes(const RunConfig& config, Runtime& runtime, const RankControl& control) {
  double known = 0;
  control.together([&] {
    known = configured_peak(config, runtime.accelerator()).value_or(ProductPeak{}).flops;
    known = prepare_products(config, known, runtime);
  });
  if (runtime.accelerator() != nullptr) return sum_over(known, control);
  if (known > 0) return known;
  return sum_over(measure_gemm_peak(runtime.threads(), compute_dtype(config.train.precision)),
                  control);
}

/// The plan of a rank that is a process.
struct ProcessPlan {
  StepPlan step;
  int64_t memory_bytes = 0;  ///< of the arenas of all ranks
};

/// Returns the plan of a rank that is a process. Throws Error on all ranks if those of one machine
/// do not fit into its memory, or if one does not fit into its device's.
ProcessPlan plan_process(const RunConfig& config, const MeshRank& mesh_rank, const Runtime& runtime,
                         const Processes& processes, const RankControl& control) {
  const Accelerator* const accelerator = runtime.accelerator();
  std::optional<StepPlan> plan;
  control.together([&] {
    plan = plan_step(config, runtime.target(), mesh_rank);
    if (accelerator != nullptr) require_fits(config, needs_on_device(*plan), accelerator);
  });
  const std::array<uint64_t, 3> own{static_cast<uint64_t>(plan->memory.arena_bytes),
                                    static_cast<uint64_t>(plan->memory.kept_bytes),
                                    static_cast<uint64_t>(beside_arena_bytes(*plan))};
  const std::vector<uint64_t> all = control.gather(own);
  MemoryNeeds needs;
  for (const int rank : processes.ranks_here()) {
    const auto rank_needs = std::span(all).subspan(static_cast<size_t>(rank) * own.size());
    ++needs.ranks;
    needs.arenas += static_cast<int64_t>(rank_needs[0]);
    needs.states += static_cast<int64_t>(rank_needs[1]);
    needs.beside += static_cast<int64_t>(rank_needs[2]);
  }
  const bool on_gpus = accelerator != nullptr && is_gpu(accelerator->device());
  if (!on_gpus) control.together([&] { require_fits(config, needs); });
  int64_t memory_bytes = 0;
  for (size_t at = 0; at < all.size(); at += own.size()) {
    memory_bytes += static_cast<int64_t>(all[at]);
  }
  return {std::move(*plan), memory_bytes};
}

/// Trains as one of several processes. All of them call it, and take the same steps together.
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
  const std::vector<int> here = processes.ranks_here();
  const LocalRank local_rank{.rank = static_cast<int>(std::ranges::find(here, rank) - here.begin()),
                             .ranks = static_cast<int>(std::ssize(here)),
                             .processes = true};
  std::unique_ptr<Accelerator> accelerator;
  control.together([&] { accelerator = options.open(resolved, local_rank); });
  Runtime runtime = runtime_of_rank(resolved, std::move(accelerator), cores.ranks);
  join_ranks(resolved, groups, runtime);
  ProcessPlan plan = plan_process(resolved, {mesh, rank}, runtime, processes, control);
  control.together([&] { require_runnable(plan.step.programs.list(), runtime); });
  std::optional<RunLock> lock;
  control.on_first([&] {
    lock.emplace(resolved.run.directory, logger);
    if (!options.resume) require_fresh(resolved);
  });
  require_shared_folder(resolved.run.directory, control);
  const double peak_flops = peak_of_processes(resolved, runtime, control);
  std::optional<SharedRun> run;
  control.together(
      [&] { run = shared_run(resolved, mesh, peak_flops, plan.step, plan.memory_bytes); });
  require_same_data(run->data, processes, control);
  std::optional<RunKeeper> keeper;
  if (control.first()) keeper.emplace(*run, options, runtime, *lock, logger);
  const Logger own_logger = control.first() ? logger : Logger::silent();
  return RankTrainer(*run, std::move(plan.step), cores, runtime, control,
                     keeper ? &*keeper : nullptr, own_logger)
      .run(options);
}

}  // namespace

TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger) {
  const RunConfig resolved = resolve(config);
  const Mesh mesh = mesh_of_run(resolved, options.processes, options.ranks,
                                [&](const std::string& sentence) { logger.warn("{}", sentence); });
  for (const std::string& sentence : without_effect(resolved, mesh.ranks())) {
    logger.warn("{}", sentence);
  }
  if (mesh.ranks() > 1) require_device_links(resolved.run.device);
  if (options.processes != nullptr) {
    return train_as_process(config, resolved, mesh, options, logger);
  }
  const LocalRank first{.rank = 0, .ranks = mesh.ranks()};
  std::unique_ptr<Accelerator> accelerator = options.open(resolved, first);
  double peak_flops = configured_peak(resolved, accelerator.get()).value_or(ProductPeak{}).flops;
  std::vector<StepPlan> plans = plan_steps_that_fit(resolved, mesh, accelerator.get());
  std::optional<Runtime> runtime(std::in_place, run_target(resolved), std::move(accelerator));
  require_runnable(plans.front().programs.list(), *runtime);
  RunLock lock(resolved.run.directory, logger);
  if (!options.resume) require_fresh(resolved);
  peak_flops = prepare_products(resolved, peak_flops, *runtime);
  int64_t memory_bytes = 0;
  for (const StepPlan& plan : plans) memory_bytes += plan.memory.arena_bytes;
  SharedRun run = shared_run(resolved, mesh, peak_flops, plans.front(), memory_bytes);
  if (mesh.ranks() > 1) {
    runtime.reset();  // each rank opens its own device
    return train_on_ranks(run, std::move(plans), options, lock, logger);
  }
  const RankControl control;
  RunKeeper keeper(run, options, *runtime, lock, logger);
  return RankTrainer(run, std::move(plans.front()), {}, *runtime, control, &keeper, logger)
      .run(options);
}

}  // namespace tessera
