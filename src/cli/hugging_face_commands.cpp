#include "cli/hugging_face_commands.h"

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/interrupt.h"
#include "base/text.h"
#include "train/hugging_face.h"

namespace tessera {

void add_import_command(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand(
      "import", "Make a checkpoint of a Hugging Face model (OLMo, OLMoE, Llama, Mixtral)");
  struct Arguments {
    std::string folder, output;
    ImportOptions options;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("FOLDER", arguments->folder,
                   "config.json, safetensors and tokenizer files, as transformers saves them")
      ->required();
  command->add_option("--output", arguments->output, "Folder that gets the checkpoint of step 0")
      ->required();
  command
      ->add_option("--precision", arguments->options.precision,
                   "What it is evaluated and run in; left out: bf16 for bf16 weights, else fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  command->add_flag("--quiet", arguments->quiet, "No progress line");
  command->callback([arguments] {
    const InterruptGuard guard;
    arguments->options.progress = !arguments->quiet;
    const ImportReport report =
        import_model(arguments->folder, arguments->output, arguments->options, Logger());
    fmt::print("{}: {}, {} parameters, {}, run in {}\n", report.checkpoint.string(),
               report.architecture, format_count(static_cast<double>(report.parameters)),
               format_bytes(report.bytes), report.precision);
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
  command->add_option("CHECKPOINT", arguments->checkpoint, "A run's folder or one checkpoint")
      ->required();
  command->add_option("--output", arguments->output, "Folder that is written; new or empty")
      ->required();
  command
      ->add_option("--dtype", options.dtype,
                   "Element type; left out: an imported model's own, else the training's precision")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  command
      ->add_option("--shard-size", options.shard_bytes,
                   "Bytes of one file at most, such as 2GB (10^9 bytes a GB)")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
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
    if (report.carried.empty()) {
      fmt::print("no tokenizer that transformers reads came with the checkpoint\n");
    } else {
      fmt::print("beside it {}\n", join(report.carried, ", "));
    }
  });
}

}  // namespace tessera
