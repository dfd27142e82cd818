#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "data/prepare.h"

namespace tessera {
namespace {

void print_report(const PrepareReport& report, const fs::path& output) {
  const Manifest& manifest = report.manifest;
  fmt::print(
      "{}: {} documents, {} tokens of {} (vocabulary {})\n"
      "  train     {} instances of {} tokens in {} shards\n"
      "  held out  {} instances\n",
      output.string(), format_count(static_cast<double>(manifest.documents)),
      format_count(static_cast<double>(manifest.tokens)), manifest.tokenizer_kind,
      manifest.vocabulary_size, manifest.train.instances, manifest.recipe.context,
      manifest.train.shards.size(), manifest.held_out.instances);
}

}  // namespace

void add_prepare_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "prepare", "Tokenize, shuffle and shard text (plain or JSONL) for training");
  auto options = std::make_shared<PrepareOptions>();
  add_input(*command, "--input", options->inputs,
            "Files, folders or globs; .jsonl is JSON lines, and any file may be .gz or .zst")
      ->required();
  add_output_folder(*command, "--output", options->output, "Folder that is written")->required();
  auto* tokenizer =
      add_input(*command, "--tokenizer", options->tokenizer,
                "A SentencePiece model, a Hugging Face tokenizer.json (BPE, byte-level "
                "or with byte fallback), a folder with one of them, or the word \"bytes\"");
  command
      ->add_option("--end-of-document", options->end_of_document,
                   "Token of a tokenizer.json that ends a document; left out: the one that a "
                   "tokenizer_config.json beside it, or its like, names")
      ->needs(tokenizer);
  command
      ->add_option("--beginning-of-document", options->beginning_of_document,
                   "Control token to put before each document, such as Llama 3's <|begin_of_text|>")
      ->needs(tokenizer);
  command
      ->add_option("--train-tokenizer", options->train_tokenizer,
                   "Train a SentencePiece model with this many pieces on the input")
      ->excludes(tokenizer);
  command->add_option("--context", options->context, "Tokens an instance")->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the shuffle")->capture_default_str();
  command
      ->add_option("--held-out", options->held_out, "Fraction of the instances kept for evaluation")
      ->capture_default_str();
  command
      ->add_option("--text-field", options->text_field,
                   "Field of a JSON line that holds the text; a.b is the field b of the object a")
      ->capture_default_str();
  command
      ->add_option("--max-bad-lines", options->max_bad_lines,
                   "More invalid JSON lines than this are an error")
      ->capture_default_str();
  command->add_flag("--strict-utf8", options->fail_on_invalid_utf8,
                    "Fail on broken UTF-8 instead of replacing it by U+FFFD");
  command->add_option("--shard-tokens", options->shard_tokens, "Tokens a shard holds at most")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0: one for each usable core")
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite,
                    "Remove first what an earlier prepare wrote there");
  command->callback([options] {
    if (options->tokenizer.empty() && options->train_tokenizer == 0) {
      throw Error("prepare needs --tokenizer FILE (or \"bytes\") or --train-tokenizer N");
    }
    const InterruptGuard guard;
    print_report(prepare(*options, Logger()), options->output);
  });
}

}  // namespace tessera
