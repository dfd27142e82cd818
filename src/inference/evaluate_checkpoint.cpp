#include "inference/evaluate_checkpoint.h"

#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/threads.h"
#include "comm/in_process/run_mesh.h"
#include "inference/evaluation_task.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

/// Evaluates on all ranks of a mesh, as threads of this process.
std::vector<SourceEvaluation> evaluate_on_ranks(const EvaluationTask& task, int threads) {
  std::vector<SourceEvaluation> result;
  World world(task.mesh.ranks(), std::chrono::seconds(task.model.config.run.rank_timeout));
  run_mesh(world, task.mesh, [&](RankGroups& groups) {
    Runtime runtime(host_target(threads_of_rank(threads, task.mesh.ranks())));
    runtime.join(groups);
    auto evaluations = task.run_rank(RankControl(groups), runtime);
    if (groups.rank() == 0) result = std::move(evaluations);
  });
  return result;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options) {
  const int threads = threads_or_all(options.threads, "--threads");
  Runtime runtime(host_target(threads, Kernels::fast, options.device));
  EvaluationTask task = evaluation_task(options, load_model(options.checkpoint, threads));
  task.model.move_to(runtime);
  std::vector<int> ranks(static_cast<size_t>(task.mesh.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  task.require_memory(runtime, ranks, /*copies=*/1);
  CheckpointEvaluation result = task.report();
  result.set_losses(ranks.size() > 1 ? evaluate_on_ranks(task, threads)
                                     : task.run_rank(RankControl(), runtime));
  return result;
}

void CheckpointEvaluation::set_losses(std::vector<SourceEvaluation> evaluations) {
  sources = std::move(evaluations);
  mean = mean_evaluation(sources);
}

std::string CheckpointEvaluation::text() const {
  Table table({"model", "loss (nats a token)", "perplexity"});
  const auto add = [&](const std::string& name, double loss) {
    table.add({name, fmt::format("{:.4f}", loss), fmt::format("{:.2f}", std::exp(loss))});
  };
  if (baselines) {
    add("unigram", baselines->unigram);
    add("bigram (Kneser-Ney)", baselines->bigram);
  }
  if (sources.size() > 1) {
    for (const SourceEvaluation& source : sources) {
      add("this checkpoint on " + source.name, source.evaluation.loss);
    }
    add("this checkpoint, mean by weights", mean.loss);
  } else {
    add("this checkpoint", mean.loss);
  }
  std::string text = fmt::format("{} (step {}), {} held-out tokens\n{}", checkpoint.string(), step,
                                 mean.targets, table.text());
  if (capacity_factor > 0) {
    text += fmt::format(
        "no token was dropped: model.capacity_factor ({:g}) bounds the experts in training alone\n",
        capacity_factor);
  }
  return text;
}

std::string CheckpointEvaluation::json() const {
  nlohmann::ordered_json json{
      {"checkpoint", checkpoint.string()}, {"step", step},           {"loss", mean.loss},
      {"perplexity", mean.perplexity},     {"tokens", mean.targets}, {"instances", mean.instances}};
  if (sources.size() > 1) {
    for (const auto& [name, weight, evaluation] : sources) {
      json["sources"][name] = {{"loss", evaluation.loss},
                               {"perplexity", evaluation.perplexity},
                               {"tokens", evaluation.targets},
                               {"instances", evaluation.instances},
                               {"weight", weight}};
    }
  }
  if (baselines) {
    json["unigram_loss"] = baselines->unigram;
    json["bigram_loss"] = baselines->bigram;
    json["baseline_tokens"] = baselines->targets;
  }
  if (capacity_factor > 0) json["dropped_tokens"] = 0;
  return json.dump() + "\n";
}

}  // namespace tessera
