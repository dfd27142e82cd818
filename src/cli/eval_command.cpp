#include <cmath>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "data/ngram.h"
#include "train/evaluate.h"
#include "train/loaded_model.h"

namespace tessera {
namespace {

struct Arguments {
  std::string checkpoint;
  std::string data;
  int64_t batch = 8;
  int64_t instances = 0;
  int threads = 0;
  bool baselines = false;
  bool json = false;
};

struct Results {
  fs::path checkpoint;
  int64_t step = 0;
  Evaluation model;
  std::optional<BaselineLoss> baselines;
};

/// A model and data that were tokenized differently have no loss in common.
void require_same_tokenizer(const LoadedModel& model, const Manifest& data,
                            const std::string& path) {
  if (model.tokenizer->fingerprint() != data.tokenizer_fingerprint) {
    throw Error(
        "{} was prepared with another tokenizer than the model's ({} instead of {}); prepare "
        "it with --tokenizer {}",
        path, data.tokenizer_fingerprint, model.tokenizer->fingerprint(),
        (model.checkpoint / model.tokenizer->file_name()).string());
  }
}

Results evaluate(const Arguments& arguments) {
  MemoryPool pool;
  const int threads = threads_or_all(arguments.threads);
  Context context(threads, Kernels::fast, &pool);
  const LoadedModel model = load_model(arguments.checkpoint, pool, threads);
  const RunConfig& config = model.config;
  const std::string data = arguments.data.empty() ? config.data.directory : arguments.data;
  Loader loader({.folder = data,
                 .split = Split::held_out,
                 .rows = arguments.batch,
                 .context = config.data.context});
  require_same_tokenizer(model, loader.manifest(), data);
  Evaluator evaluator(config.model, compute_dtype(config.train.precision), model.weights,
                      arguments.batch, config.data.context, config.data.document_mask, context);
  Results results{.checkpoint = model.checkpoint, .step = model.step};
  results.model = evaluator.run(loader, arguments.instances);
  if (arguments.baselines) results.baselines = ngram_baseline(data, config.data.context);
  return results;
}

void print(const Results& results) {
  fmt::print("{} (step {}), {} held-out tokens\n", results.checkpoint.string(), results.step,
             results.model.targets);
  Table table({"model", "loss (nats a token)", "perplexity"});
  const auto add = [&](const char* name, double loss) {
    table.add({name, fmt::format("{:.4f}", loss), fmt::format("{:.2f}", std::exp(loss))});
  };
  if (results.baselines) {
    add("unigram", results.baselines->unigram);
    add("bigram (Kneser-Ney)", results.baselines->bigram);
  }
  add("this checkpoint", results.model.loss);
  fmt::print("{}", table.text());
}

void print_json(const Results& results) {
  nlohmann::ordered_json json{{"checkpoint", results.checkpoint.string()},
                              {"step", results.step},
                              {"loss", results.model.loss},
                              {"perplexity", results.model.perplexity},
                              {"tokens", results.model.targets},
                              {"instances", results.model.instances}};
  if (results.baselines) {
    json["unigram_loss"] = results.baselines->unigram;
    json["bigram_loss"] = results.baselines->bigram;
    json["baseline_tokens"] = results.baselines->targets;
  }
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Loss and perplexity on held-out data");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--checkpoint", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  command->add_option("--data", arguments->data,
                      "What `prepare` wrote; left out: what the model was trained on");
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
  command
      ->add_flag("--baselines", arguments->baselines,
                 "Also count a unigram and a bigram model on the training split")
      ->excludes(instances);
  command->add_flag("--json", arguments->json, "One JSON object");
  command->callback([arguments] {
    const Results results = evaluate(*arguments);
    if (arguments->json) {
      print_json(results);
    } else {
      print(results);
    }
  });
}

}  // namespace tessera
