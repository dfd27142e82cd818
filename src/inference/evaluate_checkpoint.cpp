#include "inference/evaluate_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/round_up.h"
#include "base/text.h"
#include "base/threads.h"
#include "comm/in_process/run_mesh.h"
#include "inference/loaded_model.h"
#include "ops/host_target.h"

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

/// Throws Error unless the ranks can share a batch.
void require_ranks(const CheckpointEvaluationOptions& options) {
  if (options.ranks == 1) return;
  if (options.device != Device::cpu) {
    throw Error("--ranks is {}: several ranks compute on the processor, and --device is \"{}\"",
                options.ranks, word(options.device));
  }
  if (options.batch % options.ranks != 0) {
    throw Error("--ranks ({}) does not divide --batch ({}); choose a multiple", options.ranks,
                options.batch);
  }
}

/// What a checkpoint is evaluated on.
struct HeldOut {
  const TrainingData& data;
  ProgramSize size;
  int64_t instances;
};

/// Evaluates on one rank, or as one of several that share the weights.
std::vector<SourceEvaluation> evaluate_as(const LoadedModel& model, const HeldOut& held_out,
                                          Runtime& runtime, const MeshRank& place) {
  StandaloneEvaluator evaluator(model.config.model, compute_dtype(model.config.train.precision),
                                model.weights, held_out.size, runtime, place);
  return evaluate_sources(*evaluator, held_out.data, held_out.size.sequences, held_out.instances);
}

/// The same on all ranks of a mesh, as threads of this process.
std::vector<SourceEvaluation> evaluate_on_ranks(const LoadedModel& model, const HeldOut& held_out,
                                                const Mesh& mesh, int threads,
                                                std::chrono::milliseconds rank_timeout) {
  std::vector<SourceEvaluation> result;
  World world(mesh.ranks(), rank_timeout);
  run_mesh(world, mesh, [&](RankGroups& groups) {
    const int rank = groups.rank();
    Runtime runtime(host_target(std::max(1, threads / mesh.ranks())));
    runtime.join(groups);
    auto of_rank = evaluate_as(model, held_out, runtime, {mesh, rank});
    if (rank == 0) result = std::move(of_rank);
  });
  return result;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options) {
  require_ranks(options);
  const Mesh mesh({.data = {options.ranks}});
  const int threads = threads_or_all(options.threads, "--threads");
  Runtime runtime(host_target(threads, Kernels::fast, options.device));
  LoadedModel model = load_model(options.checkpoint, threads);
  model.move_to(runtime);
  const RunConfig& config = model.config;
  const TrainingData data = open_data_of(options, model);
  const int64_t rows = evaluation_rows(data, options.batch, options.instances);
  const HeldOut held_out{.data = data,
                         .size = {.sequences = round_up(rows, options.ranks),
                                  .context = data.sources.front().instances->context(),
                                  .document_mask = config.data.document_mask},
                         .instances = options.instances};
  require_evaluation_memory(config.model, compute_dtype(config.train.precision), model.weights,
                            held_out.size, runtime, mesh);
  CheckpointEvaluation result{.checkpoint = model.checkpoint, .step = model.step};
  if (options.baselines) result.baselines = baseline(data);
  result.sources = mesh.ranks() > 1
                       ? evaluate_on_ranks(model, held_out, mesh, threads, options.rank_timeout)
                       : evaluate_as(model, held_out, runtime, {});
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
