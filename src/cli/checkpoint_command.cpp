#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "base/threads.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hugging_face/convert.h"
#include "checkpoint/inspect.h"
#include "checkpoint/verify_checkpoint.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"

// Each add_..._command() adds a subcommand: its options, and a callback that works and reports.

namespace tessera {
namespace {

/// The arguments of `checkpoint inspect` and `checkpoint verify`.
struct CheckpointArguments {
  std::string path;
  bool json = false;
};

std::shared_ptr<CheckpointArguments> add_arguments(CLI::App& command) {
  auto arguments = std::make_shared<CheckpointArguments>();
  add_input(command, "PATH", arguments->path, "A run's folder, its checkpoints or one checkpoint")
      ->required();
  command.add_flag("--json", arguments->json, "One JSON object");
  return arguments;
}

void add_inspect_command(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand("inspect", "What a checkpoint holds, as a table");
  auto arguments = add_arguments(*command);
  command->callback([arguments] {
    const std::string text = read_chosen(arguments->path, Logger(), [&](const fs::path& path) {
      return arguments->json ? inspect_checkpoint_json(path) : inspect_checkpoint(path);
    });
    fmt::print("{}", text);
  });
}

void add_verify_checkpoint_command(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand(
      "verify", "Read it all and check every hash; of a run the newest; status 1 when damaged");
  auto arguments = add_arguments(*command);
  command->callback([arguments] {
    const VerifyReport report = verify_named(arguments->path, threads_or_all(0));
    fmt::print("{}", arguments->json ? report.json() : report.text());
    if (!report.ok()) throw CommandStatus{1};
  });
}

void add_import_command(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand(
      "import", "Make a checkpoint of a Hugging Face model (OLMo, OLMoE, Llama, Mixtral, ZAYA1)");
  struct Arguments {
    std::string folder, output;
    std::string precision;
    ImportOptions options;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  add_input(*command, "FOLDER", arguments->folder,
            "config.json, safetensors and tokenizer files, as transformers saves them")
      ->required();
  add_output_folder(*command, "--output", arguments->output,
                    "Folder that gets the checkpoint of step 0")
      ->required();
  command
      ->add_option("--precision", arguments->precision,
                   "The precision that it is run in; left out: bf16 for bf16 weights, else fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  command
      ->add_option("--accept-key", arguments->options.accepted_keys,
                   "A key of config.json that Tessera does not know and on which, as you have "
                   "checked, nothing depends; may be given several times")
      ->allow_extra_args(false);
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->callback([arguments] {
    const InterruptGuard guard;
    arguments->options.progress = !arguments->quiet;
    arguments->options.precision = value_of_word<Precision>(arguments->precision);
    const ImportReport report =
        import_model(arguments->folder, arguments->output, arguments->options, Logger());
    fmt::print("{}: {}, {} parameters, {}, run in {}\n", report.checkpoint.string(),
               report.architecture, format_count(static_cast<double>(report.parameters)),
               format_bytes(report.bytes), word(report.precision));
  });
}

void add_export_command(CLI::App& checkpoint) {
  CLI::App* command =
      checkpoint.add_subcommand("export", "Write a checkpoint as a folder that transformers loads");
  struct Arguments {
    std::string checkpoint, output;
    ExportModelOptions options;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  ExportModelOptions& options = arguments->options;
  add_input(*command, "CHECKPOINT", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  add_output_folder(*command, "--output", arguments->output, "Folder that is written; new or empty")
      ->required();
  command
      ->add_option("--dtype", options.dtype,
                   "Element type; left out: an imported model's own, else the training's precision")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  command
      ->add_option("--shard-size", options.shard_bytes,
                   "Size of one file of weights at most, such as 500MB, 1.5GB or 2GiB")
      ->transform(size_between("1kB", "1PB"))
      ->type_name("SIZE")
      ->default_str("5GB");
  command->add_flag("--fused-experts", options.fused_experts,
                    "One tensor for all experts of a layer, as newer classes have it");
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->callback([arguments] {
    const InterruptGuard guard;
    arguments->options.progress = !arguments->quiet;
    const auto report = export_model(arguments->checkpoint, arguments->output, arguments->options);
    fmt::print("{}: {}, {} tensors of {}, {} in {} file{}\n", arguments->output,
               report.architecture->name, report.tensors, report.dtype, format_bytes(report.bytes),
               report.files, report.files == 1 ? "" : "s");
    fmt::print("from {} (step {})\n", report.checkpoint.string(), report.step);
    if (!report.carried.empty()) fmt::print("beside it {}\n", join(report.carried, ", "));
    if (!report.note.empty()) fmt::print("note: {}\n", report.note);
    if (!report.tokenizer) {
      fmt::print("no tokenizer that transformers reads came with the checkpoint\n");
    }
  });
}

}  // namespace

void add_checkpoint_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "Look at checkpoints, import and export them");
  command->require_subcommand(1);
  add_inspect_command(*command);
  add_verify_checkpoint_command(*command);
  add_import_command(*command);
  add_export_command(*command);
}

}  // namespace tessera
