#include "inference/evaluate_checkpoint.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
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

}  // namespace

CheckpointEvaluation evaluate_checkpoint(const CheckpointEvaluationOptions& options) {
  const int threads = threads_or_all(options.threads);
  Runtime runtime(host_target(threads, Kernels::fast, options.device));
  LoadedModel model = load_model(options.checkpoint, threads);
  model.move_to(runtime);
  const RunConfig& config = model.config;
  const TrainingData data = open_data_of(options, model);
  const ProgramSize size{.sequences = evaluation_rows(data, options.batch, options.instances),
                         .context = data.sources.front().instances->context(),
                         .document_mask = config.data.document_mask};
  const DType compute = compute_dtype(config.train.precision);
  require_evaluation_memory(config.model, compute, model.weights, size, runtime);
  StandaloneEvaluator evaluator(config.model, compute, model.weights, size, runtime);
  CheckpointEvaluation result{.checkpoint = model.checkpoint, .step = model.step};
  if (options.baselines) result.baselines = baseline(data);
  result.sources = evaluate_sources(*evaluator, data, size.sequences, options.instances);
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
