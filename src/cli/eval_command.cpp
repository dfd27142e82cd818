#include <cmath>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/eval_tasks.h"
#include "data/ngram.h"
#include "data/sources/open_data.h"
#include "inference/evaluate.h"
#include "inference/loaded_model.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

struct EvalArguments {
  std::string checkpoint;
  SourceConfig data;  // without a path: what the model was trained on
  int64_t batch = 8;
  int64_t instances = 0;
  int threads = 0;
  bool baselines = false;
  bool json = false;
  EvalTasksArguments tasks;
};

struct Results {
  fs::path checkpoint;
  int64_t step = 0;
  std::vector<SourceEvaluation> sources;
  Evaluation model;  // over all sources
  std::optional<BaselineLoss> baselines;
};

/// What to evaluate on, which must have been tokenized as the model's training data was: otherwise
/// the losses have nothing in common. An imported model's context is the longest that it supports,
/// which data seldom has; prepared data decides then.
TrainingData open_data_of(const EvalArguments& arguments, const LoadedModel& model) {
  DataConfig data = model.config.data;
  const std::string tokenizer = model.checkpoint.string();
  if (!arguments.data.path.empty()) {
    return open_held_out_data(arguments.data, data.context, tokenizer);
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

Results evaluate(const EvalArguments& arguments) {
  const int threads = threads_or_all(arguments.threads);
  Runtime runtime(host_target(threads));
  const LoadedModel model = load_model(arguments.checkpoint, threads);
  const RunConfig& config = model.config;
  const TrainingData data = open_data_of(arguments, model);
  const ProgramSize size{.sequences = evaluation_rows(data, arguments.batch, arguments.instances),
                         .context = data.sources.front().instances->context(),
                         .document_mask = config.data.document_mask};
  const DType compute = compute_dtype(config.train.precision);
  require_evaluation_memory(config.model, compute, model.weights, size, runtime.target());
  StandaloneEvaluator evaluator(config.model, compute, model.weights, size, runtime);
  Results results{.checkpoint = model.checkpoint, .step = model.step};
  results.sources = evaluate_sources(*evaluator, data, size.sequences, arguments.instances);
  results.model = mean_evaluation(results.sources);
  if (arguments.baselines) results.baselines = baseline(data);
  return results;
}

void print(const Results& results) {
  fmt::print("{} (step {}), {} held-out tokens\n", results.checkpoint.string(), results.step,
             results.model.targets);
  Table table({"model", "loss (nats a token)", "perplexity"});
  const auto add = [&](const std::string& name, double loss) {
    table.add({name, fmt::format("{:.4f}", loss), fmt::format("{:.2f}", std::exp(loss))});
  };
  if (results.baselines) {
    add("unigram", results.baselines->unigram);
    add("bigram (Kneser-Ney)", results.baselines->bigram);
  }
  if (results.sources.size() > 1) {
    for (const SourceEvaluation& source : results.sources) {
      add("this checkpoint on " + source.name, source.evaluation.loss);
    }
    add("this checkpoint, mean by weights", results.model.loss);
  } else {
    add("this checkpoint", results.model.loss);
  }
  fmt::print("{}", table.text());
}

void print_json(const Results& results) {
  nlohmann::ordered_json json{{"checkpoint", results.checkpoint.string()},
                              {"step", results.step},
                              {"loss", results.model.loss},
                              {"perplexity", results.model.perplexity},
                              {"tokens", results.model.targets},
                              {"instances", results.model.instances}};
  if (results.sources.size() > 1) {
    for (const auto& [name, weight, evaluation] : results.sources) {
      json["sources"][name] = {{"loss", evaluation.loss},
                               {"perplexity", evaluation.perplexity},
                               {"tokens", evaluation.targets},
                               {"instances", evaluation.instances},
                               {"weight", weight}};
    }
  }
  if (results.baselines) {
    json["unigram_loss"] = results.baselines->unigram;
    json["bigram_loss"] = results.baselines->bigram;
    json["baseline_tokens"] = results.baselines->targets;
  }
  fmt::print("{}\n", json.dump());
}

void add_task_options(CLI::App& command, EvalTasksArguments& tasks,
                      std::initializer_list<CLI::Option*> of_held_out_data) {
  auto* files = command.add_option("--tasks", tasks.files,
                                   "JSON Lines of multiple-choice questions to answer instead: "
                                   "{\"context\": TEXT, \"choices\": [TEXT, ...], \"answer\": N}");
  for (CLI::Option* option : of_held_out_data) files->excludes(option);
  command
      .add_option("--predictions", tasks.predictions,
                  "With --tasks: a file for the scores of every question, JSON Lines")
      ->needs(files);
  command
      .add_option("--delimiter", tasks.delimiter,
                  "With --tasks: what joins a context and a choice that begins without white space")
      ->needs(files)
      ->capture_default_str();
  command
      .add_option("--beginning-of-document", tasks.beginning_of_document,
                  "With --tasks: control token before every context, such as Llama 3's "
                  "<|begin_of_text|>")
      ->needs(files);
}

void run(const EvalArguments& arguments) {
  if (!arguments.tasks.files.empty()) {
    EvalTasksArguments tasks = arguments.tasks;
    tasks.checkpoint = arguments.checkpoint;
    tasks.batch = arguments.batch;
    tasks.threads = arguments.threads;
    tasks.json = arguments.json;
    eval_tasks(tasks);
    return;
  }
  const Results results = evaluate(arguments);
  if (arguments.json) {
    print_json(results);
  } else {
    print(results);
  }
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "eval", "Loss and perplexity on held-out data, or answers to multiple-choice questions");
  auto arguments = std::make_shared<EvalArguments>();
  command->add_option("--checkpoint", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  auto* data = command->add_option(
      "--data", arguments->data.path,
      "What `prepare` wrote, of which the held-out part is taken, or a Megatron prefix or token "
      "files, which are taken whole; left out: the held-out part of what the model was trained on");
  command
      ->add_option("--dtype", arguments->data.dtype,
                   "With --data: element type of token files without a .npy header")
      ->check(CLI::IsMember({"header", "uint16", "uint32", "int32", "int64"}))
      ->needs(data)
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Sequences at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  auto* instances = command->add_option("--instances", arguments->instances,
                                        "At most this many sequences; 0: all");
  instances->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  // The baselines are taken over the whole split: beside a part of it they would say nothing.
  auto* baselines = command
                        ->add_flag("--baselines", arguments->baselines,
                                   "Also count a unigram and a bigram model on the training split")
                        ->excludes(instances);
  command->add_flag("--json", arguments->json, "One JSON object");
  add_task_options(*command, arguments->tasks, {data, instances, baselines});
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tessera
