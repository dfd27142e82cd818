#include "inference/evaluate_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/rank_threads.h"
#include "base/round_up.h"
#include "base/text.h"
#include "base/threads.h"
#include "comm/in_process/run_mesh.h"
#include "config/mesh_of.h"
#include "inference/loaded_model.h"
#include "inference/rank_weights.h"
#include "ops/host_target.h"
#include "plan/programs.h"

namespace tessera {
namespace {

/// Opens the data to evaluate on. It must be tokenized as the model's training data was, because
/// losses are not comparable otherwise. The context of an imported model is the longest that it
/// supports, and data seldom has that; the prepared data then decides.
TrainingData open_data_of(const CheckpointEvaluationOptions& options, const LoadedModel& model) {
  DataConfig data = model.config.data;
  const std::string tokenizer = model.checkpoint.string();
  if (!options.data.path.empty()) {
    return open_held_out_data(options.data, data.context, tokenizer);
  }
  data.context = longest_context(named_sources(data), data.context);
  data.tokenizer = tokenizer;
  return open_data(data);
}

BaselineLoss baseline(const TrainingData& data) {
  if (data.sources.size() > 1) {
    throw Error("--baselines counts one source, and the data is a mix of {}; name one by --data",
                data.sources.size());
  }
  const InstanceSource& source = *data.sources.front().instances;
  if (source.instances(Split::train) == 0) {
    throw Error("--baselines counts the training part of the data, and {} has none here",
                source.description());
  }
  return ngram_baseline(source, data.tokenizer.range.vocabulary_size);
}

/// The ranks of an evaluation of sequences of `context` tokens. Throws Error unless they can share
/// the model and a batch.
Mesh mesh_of_evaluation(const CheckpointEvaluationOptions& options, const LoadedModel& model,
                        int64_t context) {
  if (options.ranks > 1 && options.device != Device::cpu) {
    throw Error("--ranks is {}: several ranks compute on the processor, and --device is \"{}\"",
                options.ranks, word(options.device));
  }
  RunConfig config = model.config;
  config.parallel = options.parallel;
  config.file.clear();  // it is not the one that says how ranks share the work
  config.data.context = context;
  Mesh mesh = mesh_of_model(config, options.ranks);
  if (options.batch % data_ranks(mesh) != 0) {
    throw Error(
        "--batch ({}) does not divide over {} data-parallel ranks, which --ranks ({}) leaves "
        "beside parallel.tensor ({}) and parallel.context ({}); choose a multiple",
        options.batch, data_ranks(mesh), options.ranks, options.parallel.tensor,
        options.parallel.context);
  }
  return mesh;
}

/// What a checkpoint is evaluated on, and how.
struct Task {
  const CheckpointEvaluationOptions& options;
  const LoadedModel& model;
  const TrainingData& data;
  const Mesh& mesh;
  ProgramSize size;
  int threads;  // of all ranks

  EvaluationProgram program(int rank) const {
    ExpertLayout experts = expert_layout(options.parallel);
    experts.rows_bound = 0;  // no token is dropped, so more rows may come than in training
    return write_evaluation(inference_config(model.config.model),
                            compute_dtype(model.config.train.precision), size, {mesh, rank},
                            experts);
  }
  std::vector<SourceEvaluation> run(Evaluator& evaluator) const {
    return evaluate_sources(evaluator, data, size.sequences, options.instances);
  }
};

void require_memory(const Task& task, const Runtime& runtime) {
  int64_t held = 0;
  for (const auto& [name, tensor] : task.model.weights) held += tensor.bytes();
  const EvaluationProgram of_first = task.program(0);
  require_evaluation_memory(of_first, shared_weights(task.model, of_first.parameters), task.size,
                            runtime, task.mesh.ranks(), held);
}

std::vector<SourceEvaluation> evaluate_on_one(const Task& task, Runtime& runtime) {
  StandaloneEvaluator evaluator(task.program(0), task.model.weights, runtime);
  return task.run(*evaluator);
}

/// The same on all ranks of a mesh, as threads of this process.
std::vector<SourceEvaluation> evaluate_on_ranks(const Task& task) {
  std::vector<SourceEvaluation> result;
  World world(task.mesh.ranks(), std::chrono::seconds(task.model.config.run.rank_timeout));
  run_mesh(world, task.mesh, [&](RankGroups& groups) {
    Runtime runtime(host_target(threads_of_rank(task.threads, task.mesh.ranks())));
    runtime.join(groups);
    EvaluationProgram program = task.program(groups.rank());
    const GivenTensors weights =
        rank_weights(task.model, program.parameters, {task.mesh, groups.rank()});
    StandaloneEvaluator evaluator(std::move(program), weights, runtime);
    auto of_rank = task.run(*evaluator);
    if (groups.rank() == 0) result = std::move(of_rank);
  });
  return result;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options) {
  const int threads = threads_or_all(options.threads, "--threads");
  Runtime runtime(host_target(threads, Kernels::fast, options.device));
  LoadedModel model = load_model(options.checkpoint, threads);
  const TrainingData data = open_data_of(options, model);
  const int64_t context = data.sources.front().instances->context();
  const Mesh mesh = mesh_of_evaluation(options, model, context);
  model.move_to(runtime);
  const int64_t rows = evaluation_rows(data, options.batch, options.instances);
  const Task task{.options = options,
                  .model = model,
                  .data = data,
                  .mesh = mesh,
                  .size = {.sequences = round_up(rows, data_ranks(mesh)),
                           .context = context,
                           .document_mask = model.config.data.document_mask},
                  .threads = threads};
  require_memory(task, runtime);
  CheckpointEvaluation result{.checkpoint = model.checkpoint, .step = model.step};
  if (options.baselines) result.baselines = baseline(data);
  result.sources = mesh.ranks() > 1 ? evaluate_on_ranks(task) : evaluate_on_one(task, runtime);
  result.model = mean_evaluation(result.sources);
  return result;
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
    add("this checkpoint, mean by weights", model.loss);
  } else {
    add("this checkpoint", model.loss);
  }
  return fmt::format("{} (step {}), {} held-out tokens\n{}", checkpoint.string(), step,
                     model.targets, table.text());
}

std::string CheckpointEvaluation::json() const {
  nlohmann::ordered_json json{{"checkpoint", checkpoint.string()},
                              {"step", step},
                              {"loss", model.loss},
                              {"perplexity", model.perplexity},
                              {"tokens", model.targets},
                              {"instances", model.instances}};
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
  return json.dump() + "\n";
}

}  // namespace tessera
