#include "train/evaluate_processes.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/threads.h"
#include "checkpoint/checkpoint_manifest.h"
#include "comm/process_groups.h"
#include "inference/evaluation_task.h"
#include "ops/host_target.h"
#include "train/same_run.h"
#include "train/shared_cores.h"

namespace tessera {
namespace {

/// Returns a text that identifies a checkpoint: on another machine its path may hold another one.
std::string checkpoint_identity(const LoadedModel& model) {
  const std::string text = read_file(model.checkpoint / kCheckpointManifestName);
  return fmt::format("step {} with the hash {}", model.step, hash_text(hash(text)));
}

}  // namespace

std::optional<CheckpointEvaluation> evaluate_as_process(CheckpointEvaluationOptions options,
                                                        Processes& processes) {
  options.ranks = processes.ranks();
  options.processes = true;
  const int rank = processes.rank();
  // This mesh serves agreement alone: how ranks share the model is not known yet.
  RankGroups all_ranks = groups_of(Mesh({.data = {processes.ranks()}}), processes);
  const RankControl control = control_of(all_ranks, processes);
  const SharedCores cores =
      find_shared_cores(processes.hosts()[static_cast<size_t>(rank)], control);
  std::optional<EvaluationTask> task;
  std::optional<Runtime> runtime;
  std::string identity;
  control.together([&] {
    const int threads = threads_of_rank(threads_or_all(options.threads, "--threads"), cores.ranks);
    const Logger logger = control.is_first() ? Logger() : Logger::silent();
    task.emplace(evaluation_task(options, load_model(options.checkpoint, threads, logger)));
    runtime.emplace(host_target(threads));
    const std::vector<int> local_ranks = processes.ranks_here();
    task->require_memory(*runtime, local_ranks, static_cast<int>(local_ranks.size()));
    identity = checkpoint_identity(task->model);
  });
  require_same_start(evaluation_config(options, task->model), processes, control);
  const std::vector<SameFact> facts{readable_fact("--batch", std::to_string(options.batch)),
                                    readable_fact("--instances", std::to_string(options.instances)),
                                    readable_fact("the checkpoint", identity)};
  require_same(facts, processes, control);
  require_same_data(task->data, processes, control);
  processes.set_timeout(std::chrono::seconds(task->model.config.run.rank_timeout));
  processes.check_calls(task->model.config.run.check_calls);
  CheckpointEvaluation result;
  control.on_first([&] { result = task->report(); });
  RankGroups groups = groups_of(task->mesh, processes);
  runtime->join(groups);
  result.set_losses(task->run_rank(control, *runtime));
  if (!control.is_first()) return std::nullopt;
  return result;
}

}  // namespace tessera
