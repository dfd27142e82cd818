#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/connect_devices.h"
#include "comm/in_process/run_mesh.h"
#include "comm/process_groups.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "config/warnings.h"
#include "engine/count_flops.h"
#include "engine/executor.h"
#include "hardware/device_rate.h"
#include "hardware/gemm_rate.h"
#include "plan/overlap_step.h"
#include "plan/product_peak.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/rank_trainer.h"
#include "train/run_keeper.h"
#include "train/run_lock.h"
#include "train/same_run.h"
#include "train/shared_cores.h"
#include "train/training_state.h"

// train() resolves the configuration and calls train_rank() for each rank: in this thread, in
// several threads, or for the one rank that this process is. A rank opens its device, plans its
// step, opens the data and runs a RankTrainer. The first rank locks the run's folder. If a rank
// fails in one of these, all ranks throw its error (comm/rank_control.h).

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

/// Returns what the ranks share. `peak_flops` is the known rate of matrix products, or 0. `plan` is
/// that of one rank, and `memory_bytes` the size of all ranks' arenas together.
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

/// Connects a rank's operations with the other ranks, on their devices if the run has any.
void join_ranks(const RunConfig& config, RankGroups& groups, Runtime& runtime) {
  runtime.join(groups);
  if (runtime.accelerator() == nullptr) return;
  groups.use_devices(*runtime.accelerator(), std::chrono::seconds(config.run.rank_timeout));
}

/// A rank of a run, and the means by which it meets the others.
struct RunRank {
  MeshRank mesh_rank;
  RankGroups* groups;  // null if there are no others
  const RankControl& control;
  const Processes* processes;  // null if the ranks are threads of this process

  /// Returns the ranks on this machine, in ascending order.
  std::vector<int> ranks_here() const {
    if (processes != nullptr) return processes->ranks_here();
    std::vector<int> all(static_cast<size_t>(mesh_rank.mesh.ranks()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  /// Returns the index of this rank among those of its machine.
  LocalRank local() const {
    const std::vector<int> here = ranks_here();
    const auto index = std::ranges::find(here, mesh_rank.rank) - here.begin();
    return {.index = static_cast<int>(index),
            .ranks = static_cast<int>(std::ssize(here)),
            .processes = processes != nullptr};
  }

  /// Returns the ranks that share their cores with this one. All ranks call it.
  SharedCores shared_cores() const {
    if (processes == nullptr) return {.ranks = mesh_rank.mesh.ranks(), .index = mesh_rank.rank};
    return find_shared_cores(processes->hosts()[static_cast<size_t>(mesh_rank.rank)], control);
  }

  /// Returns the sum of a number over all ranks. All ranks call it.
  double sum(double own) const {
    const std::array<uint64_t, 1> bits{std::bit_cast<uint64_t>(own)};
    double sum = 0;
    for (const uint64_t rank_bits : control.gather(bits)) sum += std::bit_cast<double>(rank_bits);
    return sum;
  }
};

/// Gives the device its table of products. Returns the FLOP/s of matrix products of all ranks
/// together: `configured`, or measured where that is 0. A single rank on the processor returns 0
/// then: it measures when the run begins, if there is a step to do.
double prepare_products(const RunConfig& config, double configured, Runtime& runtime,
                        const RunRank& rank) {
  const DType dtype = compute_dtype(config.train.precision);
  const bool on_device = runtime.accelerator() != nullptr;
  double peak = configured;
  rank.control.together([&] {
    use_tuned_products(config, runtime);
    if (on_device && peak == 0) peak = measure_gemm_peak(runtime, dtype);
  });
  if (on_device) return rank.sum(peak);
  if (peak > 0 || !rank.control.several()) return peak;
  if (rank.processes != nullptr) return rank.sum(measure_gemm_peak(runtime.threads(), dtype));
  // Threads of one process share its cores: the first measures all of them while the others wait.
  rank.control.on_first(
      [&] { peak = measure_gemm_peak(static_cast<int>(config.run.threads), dtype); });
  return peak;
}

/// The state that the ranks of a process share: all ranks if they are its threads, else one.
struct ProcessState {
  std::optional<RunLock> lock;   // on the first rank's process
  std::optional<SharedRun> run;  // opened by one rank of the process
  FoundOrders orders;
  TrainReport report;  // of the first rank
};

/// Trains on one rank of a run. All ranks call it, and take the same steps together.
void train_rank(const RunConfig& config, const RunRank& rank, const TrainOptions& options,
                ProcessState& process, const Logger& logger) {
  const RankControl& control = rank.control;
  const SharedCores cores = rank.shared_cores();
  std::unique_ptr<Accelerator> accelerator;
  double configured_flops = 0;
  control.together([&] {
    accelerator = options.open_accelerator(config, rank.local());
    configured_flops = configured_peak(config, accelerator.get()).value_or(ProductPeak{}).flops;
  });
  const Target target = run_target(config, accelerator.get(), cores.ranks);
  Runtime runtime(target, std::move(accelerator));
  if (rank.groups != nullptr) join_ranks(config, *rank.groups, runtime);
  StepPlan plan = plan_step_that_fits(config, runtime.target(), runtime.accelerator(),
                                      rank.mesh_rank, control, rank.ranks_here(), process.orders);
  control.together([&] { require_runnable(plan.programs.list(), runtime); });
  control.on_first([&] {
    process.lock.emplace(config.run.directory, logger);
    if (!options.resume) require_fresh(config);
  });
  require_shared_folder(config.run.directory, control);
  const double peak_flops = prepare_products(config, configured_flops, runtime, rank);
  const auto memory_bytes =
      static_cast<int64_t>(rank.sum(static_cast<double>(plan.memory.arena_bytes)));
  const auto open_run = [&] {
    process.run = shared_run(config, rank.mesh_rank.mesh, peak_flops, plan, memory_bytes);
  };
  // Each process opens the data for itself; of ranks that are threads the first does it for all.
  rank.processes != nullptr ? control.together(open_run) : control.on_first(open_run);
  if (rank.processes != nullptr) require_same_data(process.run->data, *rank.processes, control);
  std::optional<RunKeeper> keeper;
  if (control.is_first()) keeper.emplace(*process.run, options, runtime, *process.lock, logger);
  const Logger own_logger = control.is_first() ? logger : Logger::silent();
  RankTrainer trainer(*process.run, std::move(plan), cores, runtime, control,
                      keeper ? &*keeper : nullptr, own_logger);
  const TrainReport report = trainer.run(options);
  if (control.is_first() || rank.processes != nullptr) process.report = report;
}

}  // namespace

TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger) {
  const RunConfig resolved = resolve(config);
  const Mesh mesh =
      mesh_of_started_ranks(resolved, options.processes, options.ranks,
                            [&](const std::string& sentence) { logger.warn("{}", sentence); });
  for (const std::string& sentence : config_warnings(resolved, mesh)) {
    logger.warn("{}", sentence);
  }
  if (mesh.ranks() > 1) {
    require_device_links(resolved.run.device);
    if (const std::string warning = overlap_warning(resolved, mesh); !warning.empty()) {
      logger.warn("{}", warning);
    }
  }
  const std::chrono::seconds timeout(resolved.run.rank_timeout);
  ProcessState process;
  const auto train_on = [&](int rank, RankGroups* groups, const RankControl& control) {
    train_rank(resolved, {{mesh, rank}, groups, control, options.processes}, options, process,
               logger);
  };
  if (options.processes != nullptr) {
    options.processes->set_timeout(timeout);
    options.processes->check_calls(resolved.run.check_calls);
    RankGroups groups = groups_of(mesh, *options.processes);
    const RankControl control = control_of(groups, *options.processes);
    require_same_start(config, *options.processes, control);
    train_on(options.processes->rank(), &groups, control);
  } else if (mesh.ranks() == 1) {
    train_on(0, nullptr, RankControl());
  } else {
    World world(mesh.ranks(), timeout);
    run_mesh(world, mesh,
             [&](RankGroups& groups) { train_on(groups.rank(), &groups, RankControl(groups)); });
  }
  return process.report;
}

}  // namespace tessera
