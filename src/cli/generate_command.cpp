#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/threads.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "cli/standard_output.h"
#include "inference/generate.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

struct GenerateArguments {
  std::string checkpoint;
  std::string prompt;
  GenerateOptions options;
  bool ignore_end = false;
  bool json = false;
  int threads = 0;
  std::string device{word(Device::cpu)};
};

void write_json(const LoadedModel& model, const GenerateArguments& arguments, Runtime& runtime) {
  const Generation result = generate(model, arguments.prompt, arguments.options, runtime);
  fmt::print("{}\n", nlohmann::ordered_json{{"checkpoint", model.checkpoint.string()},
                                            {"step", model.step},
                                            {"prompt", arguments.prompt},
                                            {"text", result.text},
                                            {"tokens", result.tokens},
                                            {"seconds", result.seconds}}
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Writes the text as it arrives. Prints the prompt with the first piece, because errors in the
/// options are thrown before that.
void write_text(const LoadedModel& model, const GenerateArguments& arguments, Runtime& runtime) {
  bool prompt_printed = false;
  const auto stream = [&](std::string_view text) {
    fmt::print("{}{}", prompt_printed ? "" : arguments.prompt, text);
    flush_output();  // shows the text as it arrives
    prompt_printed = true;
  };
  const Generation result = generate(model, arguments.prompt, arguments.options, runtime, stream);
  stream("\n");
  say(fmt::format("[{} (step {}): {} tokens, {:.1f} a second]", model.checkpoint.string(),
                  model.step, result.tokens.size(),
                  static_cast<double>(result.tokens.size()) / result.seconds));
}

void run(const GenerateArguments& arguments) {
  const int threads = threads_or_all(arguments.threads, "--threads");
  Runtime runtime(host_target(threads, Kernels::fast, from_word<Device>(arguments.device)));
  LoadedModel model = load_model(arguments.checkpoint, threads);
  model.move_to(runtime);
  if (arguments.json) {
    write_json(model, arguments, runtime);
  } else {
    write_text(model, arguments, runtime);
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Let a trained model continue a text");
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  SamplingOptions& sampling = options.sampling;
  add_input(*command, "--checkpoint", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  command->add_option("--prompt", arguments->prompt, "The text to continue; may be empty")
      ->required();
  command->add_option("--beginning-of-document", options.beginning_of_document,
                      "Control token before the prompt, such as Llama 3's <|begin_of_text|>; left "
                      "out: the end of another document");
  command->add_option("--tokens", options.tokens, "New tokens at most")
      ->check(number_from(1))
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 takes the most probable token")
      ->check(number_from(0))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Only the k most probable tokens; 0: all")
      ->check(number_from(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "Only the most probable tokens that together reach this probability")
      ->check(number_above_zero())
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "Seed of the sampling")->capture_default_str();
  command->add_flag("--ignore-end", arguments->ignore_end, "Go on after an end-of-document token");
  command->add_option("--threads", arguments->threads, "Threads; 0: one for each usable core")
      ->check(number_from(0))
      ->capture_default_str();
  add_word<Device>(*command, "--device", arguments->device, "The device that computes");
  command->add_flag("--json", arguments->json, "One JSON object");
  command->callback([arguments] {
    arguments->options.stop_at_end = !arguments->ignore_end;
    run(*arguments);
  });
}

}  // namespace tessera
