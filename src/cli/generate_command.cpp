#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "train/generate.h"

namespace tessera {

void add_generate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Let a trained model continue a text");
  struct Arguments {
    std::string checkpoint;
    std::string prompt;
    GenerateOptions options;
    bool ignore_end = false;
    bool json = false;
    int threads = 0;
  };
  auto arguments = std::make_shared<Arguments>();
  GenerateOptions& options = arguments->options;
  SamplingOptions& sampling = options.sampling;
  command->add_option("--checkpoint", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  command->add_option("--prompt", arguments->prompt, "The text to continue; may be empty")
      ->required();
  command->add_option("--tokens", options.tokens, "New tokens at most")->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 takes the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Only the k most probable tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "Only the most probable tokens that together reach this probability")
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "Of the draws")->capture_default_str();
  command->add_flag("--ignore-end", arguments->ignore_end, "Go on after an end-of-document token");
  command->add_option("--threads", arguments->threads, "0: all cores")->capture_default_str();
  command->add_flag("--json", arguments->json, "One JSON object");
  command->callback([arguments] {
    MemoryPool pool;
    const int threads = arguments->threads > 0 ? arguments->threads : machine_threads();
    Context context(threads, Kernels::fast, &pool);
    const LoadedModel model = load_model(arguments->checkpoint, pool, threads);
    arguments->options.stop_at_end = !arguments->ignore_end;
    const auto stream = [](std::string_view text) {
      fmt::print("{}", text);
      std::fflush(stdout);
    };
    if (arguments->json) {
      const Generation result = generate(model, arguments->prompt, arguments->options, context);
      fmt::print("{}\n", nlohmann::ordered_json{{"prompt", arguments->prompt},
                                                {"text", result.text},
                                                {"tokens", result.tokens},
                                                {"seconds", result.seconds}}
                             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return;
    }
    stream(arguments->prompt);
    const Generation result =
        generate(model, arguments->prompt, arguments->options, context, stream);
    fmt::print("\n");
    fmt::print(stderr, "[{} tokens, {:.1f} a second]\n", result.tokens.size(),
               static_cast<double>(result.tokens.size()) / result.seconds);
  });
}

}  // namespace tessera
