#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/several_processes.h"
#include "comm/processes.h"
#include "config/load_config.h"
#include "inference/evaluate_checkpoint.h"
#include "inference/multiple_choice/answer_tasks.h"
#include "train/evaluate_processes.h"

// `eval` has two uses: the loss on held-out data, on one or several ranks, and answers to multiple-
// choice questions (--tasks), on one. run() decides. The parser refuses to mix their options.

namespace tessera {
namespace {

/// The arguments of both uses.
struct EvalArguments {
  CheckpointEvaluationOptions held_out;  // its checkpoint, batch and threads also apply to tasks
  std::string dtype{word(TokenFileType::header)};
  std::vector<std::string> files;  // files of questions; none: held-out data
  MultipleChoiceOptions scoring;
  std::string device{word(Device::cpu)};
  std::string predictions;  // file for the scores of each question; empty: none
  bool json = false;
  std::string config;                  // the file whose [parallel] the ranks use; empty: none
  std::vector<std::string> overrides;  // of single keys of [parallel]
};

void add_task_options(CLI::App& command, EvalArguments& arguments,
                      std::initializer_list<CLI::Option*> held_out_options) {
  auto* files = add_input(command, "--tasks", arguments.files,
                          "JSON Lines of multiple-choice questions to answer instead: "
                          "{\"context\": PROMPT, \"choices\": [TEXT, ...], \"answer\": N}");
  for (CLI::Option* option : held_out_options) files->excludes(option);
  add_output(command, "--predictions", arguments.predictions,
             "With --tasks: a file for the scores of every question, JSON Lines")
      ->needs(files);
  command
      .add_option("--delimiter", arguments.scoring.delimiter,
                  "With --tasks: what joins a prompt and a choice that begins without white space")
      ->needs(files)
      ->capture_default_str();
  command
      .add_option("--beginning-of-document", arguments.scoring.beginning_of_document,
                  "With --tasks: control token before every prompt, such as Llama 3's "
                  "<|begin_of_text|>")
      ->needs(files);
}

/// Answers multiple-choice questions.
void answer_questions(const EvalArguments& arguments) {
  if (!arguments.predictions.empty()) require_writable(arguments.predictions);
  TaskOptions options{.checkpoint = arguments.held_out.checkpoint,
                      .files = arguments.files,
                      .scoring = arguments.scoring,
                      .threads = arguments.held_out.threads,
                      .device = arguments.held_out.device};
  options.scoring.rows = arguments.held_out.batch;
  const TaskAnswers answers = answer_tasks(options);
  fmt::print("{}", arguments.json ? answers.json() : answers.text());
  if (!arguments.predictions.empty()) write_file(arguments.predictions, answers.predictions());
}

/// Returns [parallel] of the configuration with its overrides.
ParallelSection load_parallel(const EvalArguments& arguments) {
  for (const std::string& override : arguments.overrides) {
    if (!override.starts_with("parallel.")) {
      throw Error(
          "--set {}: an evaluation takes keys of [parallel] only, such as parallel.tensor=2",
          override);
    }
  }
  return arguments.config.empty()
             ? parse_parallel("", "the command line", arguments.overrides)
             : parse_parallel(read_file(arguments.config), arguments.config, arguments.overrides);
}

/// Evaluates with threads, or as one of several processes. Then the first process prints.
void run(EvalArguments& arguments, Processes* processes) {
  CheckpointEvaluationOptions& options = arguments.held_out;
  refuse_thread_ranks(processes, options.ranks);
  if (processes != nullptr && !arguments.files.empty()) {
    throw Error(
        "--tasks: questions are answered by one process, and this is one of {}; start it without "
        "mpirun or srun",
        processes->ranks());
  }
  if (!arguments.files.empty()) return answer_questions(arguments);
  options.parallel = load_parallel(arguments);
  const std::optional<CheckpointEvaluation> evaluation =
      processes != nullptr ? evaluate_as_process(options, *processes)
                           : evaluate_checkpoint(options);
  if (evaluation) fmt::print("{}", arguments.json ? evaluation->json() : evaluation->text());
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "eval", "Loss and perplexity on held-out data, or answers to multiple-choice questions");
  auto arguments = std::make_shared<EvalArguments>();
  CheckpointEvaluationOptions& options = arguments->held_out;
  add_input(*command, "--checkpoint", options.checkpoint, "A run's folder or one checkpoint")
      ->required();
  auto* data = add_input(
      *command, "--data", options.data.path,
      "What `prepare` wrote, of which the held-out part is taken, or a Megatron prefix or token "
      "files, which are taken whole; left out: the held-out part of what the model was trained on");
  add_word<TokenFileType>(*command, "--dtype", arguments->dtype,
                          "With --data: element type of token files without a .npy header")
      ->needs(data);
  command->add_option("--batch", options.batch, "Sequences at a time")
      ->check(number_from(1))
      ->capture_default_str();
  auto* instances =
      command->add_option("--instances", options.instances, "At most this many sequences; 0: all");
  instances->check(number_from(0))->capture_default_str();
  command->add_option("--threads", options.threads, "Threads; 0: one for each usable core")
      ->check(number_from(0))
      ->capture_default_str();
  auto* ranks = add_number(
      *command, "--ranks", options.ranks, 1, kMostThreads,
      "Ranks, as threads of this process. They share the sequences, unless [parallel] says more. "
      "Under mpirun or srun each process is a rank, and this is left out");
  auto* config = add_input(
      *command, "--config", arguments->config,
      "A configuration, of which [parallel] says how the ranks share the work; only that is used");
  auto* overrides = command->add_option("--set", arguments->overrides,
                                        "Set a key of [parallel]: parallel.KEY=VALUE (repeatable)");
  overrides->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_word<Device>(*command, "--device", arguments->device, "The device that computes");
  // The baselines count the whole split, so they do not compare with a loss on a part of it.
  auto* baselines = command
                        ->add_flag("--baselines", options.baselines,
                                   "Also count a unigram and a bigram model on the training split")
                        ->excludes(instances);
  command->add_flag("--json", arguments->json, "One JSON object");
  add_task_options(*command, *arguments, {data, instances, baselines, ranks, config, overrides});
  command->callback([arguments] {
    arguments->held_out.device = from_word<Device>(arguments->device);
    arguments->held_out.data.dtype = from_word<TokenFileType>(arguments->dtype);
    const std::unique_ptr<Processes> processes = join_processes();
    run_as_one_process(processes.get(), [&] { run(*arguments, processes.get()); });
  });
}

}  // namespace tessera
