#include "data/prepare.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/corpus_tokenizer.h"
#include "data/shards/gather.h"
#include "data/shards/output_folder.h"
#include "data/shards/work_item.h"
#include "data/tokenizer.h"
#include "data/train_tokenizer.h"

// Preparation::run() takes the steps in order: find or train the tokenizer, tokenize the work items
// (corpus_tokenizer.h), gather their tokens into permuted shards (shards/gather.h), write the
// manifest. Each step keeps what an earlier, unfinished run has done.

namespace tessera {
namespace {

constexpr int64_t kSmallestItem = int64_t{256} << 10;  // bytes of text
constexpr int64_t kLargestItem = int64_t{16} << 20;
constexpr int64_t kItemsWanted = 1024;  // enough to keep many cores busy until the end

void check_options(const PrepareOptions& options) {
  if (options.output.empty()) throw Error("no output folder given; name one");
  if (options.tokenizer.empty() == (options.train_tokenizer == 0)) {
    throw Error(
        "give either a tokenizer (a SentencePiece model, a tokenizer.json or the word 'bytes') or "
        "the size of one to train; {} given",
        options.tokenizer.empty() ? "neither was" : "both were");
  }
  if (options.tokenizer.empty() && !options.beginning_of_document.empty()) {
    throw Error(
        "a tokenizer that is trained is for documents that nothing stands before; leave '{}' out",
        options.beginning_of_document);
  }
  if (options.tokenizer.empty() && !options.end_of_document.empty()) {
    throw Error(
        "a tokenizer that is trained has an end-of-document token of its own; leave '{}' out",
        options.end_of_document);
  }
  if (options.train_tokenizer < 0) {
    throw Error("a tokenizer of {} pieces cannot be trained; expected a positive number",
                options.train_tokenizer);
  }
  if (options.context < 2) {
    throw Error("a context of {} has no token to predict; expected at least 2", options.context);
  }
  if (!(options.held_out >= 0 && options.held_out < 1)) {
    throw Error("a held-out fraction of {} is out of range; expected 0 <= fraction < 1",
                options.held_out);
  }
  const auto require_at_least = [](int64_t value, int64_t least, std::string_view name) {
    if (value < least) throw Error("{} is {}; expected at least {}", name, value, least);
  };
  require_at_least(options.shard_tokens, 1, "shard_tokens");
  require_at_least(options.tokenizer_sample_bytes, 1, "tokenizer_sample_bytes");
  require_at_least(options.item_bytes, 0, "item_bytes");
  require_at_least(options.max_bad_lines, 0, "max_bad_lines");
  require_at_least(options.threads, 0, "threads");
}

/// One run of prepare().
class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Logger& logger)
      : options_(options),
        logger_(logger),
        threads_(threads_or_all(options.threads, "--threads")),
        read_options_{options.text_field, options.fail_on_invalid_utf8} {
    check_options(options);
    if (!options.tokenizer.empty()) {
      tokenizer_ = load_tokenizer(options.tokenizer, options.end_of_document);
      beginning_ = beginning_of_document(*tokenizer_, options.beginning_of_document);
    }
    corpus_ = scan_inputs(options.inputs, options.output, logger);
    recipe_ = make_recipe();
    folder_.emplace(options.output, options.overwrite);
  }

  PrepareReport run() {
    const Stopwatch watch;
    if (folder_->is_complete(recipe_)) {
      // An earlier run may have ended after it wrote the manifest.
      folder_->remove_work();
      const Manifest& manifest = report_.manifest = read_manifest(folder_->path());
      report_.was_complete = true;
      check_limits(manifest.bad_lines, manifest.first_bad_lines, manifest.invalid_utf8);
      verify_prepared(folder_->path());
      warn(manifest);
      logger_.info(
          "{} is complete already: {} training instances of {} tokens; all files have the hashes "
          "that the manifest says, nothing to do",
          folder_->path().string(), manifest.train.instances, recipe_.context);
      return report_;
    }
    folder_->begin(recipe_, tokenizer_ ? tokenizer_->files() : std::vector<TokenizerFile>());
    prepare_tokenizer();
    tokenize();
    write_shards();
    finish();
    report_.seconds = watch.seconds();
    return report_;
  }

 private:
  Recipe make_recipe() const {
    Recipe recipe;
    recipe.context = options_.context;
    recipe.seed = options_.seed;
    recipe.held_out_fraction = options_.held_out;
    recipe.shard_tokens = options_.shard_tokens;
    recipe.item_bytes = options_.item_bytes > 0
                            ? options_.item_bytes
                            : std::clamp(corpus_.bytes / kItemsWanted, kSmallestItem, kLargestItem);
    recipe.text_field = options_.text_field;
    recipe.beginning_of_document = options_.beginning_of_document;
    recipe.tokenizer = tokenizer_ ? tokenizer_->kind() : "trained";
    if (tokenizer_) {
      recipe.tokenizer_fingerprint = tokenizer_->fingerprint();
    } else {
      recipe.trained_vocabulary_size = options_.train_tokenizer;
      recipe.trained_sample_bytes = options_.tokenizer_sample_bytes;
    }
    recipe.inputs = corpus_.files;
    return recipe;
  }

  /// Trains the tokenizer if one is wanted and not trained yet. Puts its files into the folder.
  void prepare_tokenizer() {
    const fs::path& folder = folder_->path();
    const bool trains = !tokenizer_;
    if (trains && folder_->holds_trained_tokenizer()) tokenizer_ = load_tokenizer(folder);
    if (!tokenizer_) {
      const auto& [lines, statistics] =
          sample_lines(corpus_, options_.tokenizer_sample_bytes, read_options_);
      if (lines.empty()) refuse_without_text(statistics);
      logger_.info("training a tokenizer of {} pieces on {} lines", options_.train_tokenizer,
                   lines.size());
      try {
        tokenizer_ = train_tokenizer(lines, options_.train_tokenizer);
      } catch (const Error&) {
        folder_->remove_all();  // so that a run with another size is not refused
        throw;
      }
    }
    for (const TokenizerFile& file : tokenizer_->files()) {
      const fs::path path = folder / file.name;
      if (!path_exists(path) || read_file(path) != file.content) write_file(path, file.content);
    }
    if (trains) folder_->keep_trained_hash(tokenizer_->fingerprint());
    if (const std::string reason = tokenizer_->why_slow(); !reason.empty()) {
      logger_.info("encoding takes several times as long as with other tokenizers: {}", reason);
    }
    // Training takes long and cannot be stopped halfway.
    if (InterruptGuard::requested()) {
      throw Error(
          "interrupted before tokenizing; run prepare again, without overwriting, to continue");
    }
    stream_.dtype = tokenizer_->vocabulary_size() <= 1 << 16 ? DType::u16 : DType::i32;
  }

  /// Tokenizes every work item that is not done yet (Optimus §4, tokenization).
  void tokenize() {
    const std::vector<WorkItem> items = plan_items(corpus_, recipe_.item_bytes);
    for (size_t i = 0; i < items.size(); ++i) {
      stream_.items.push_back(folder_->item_path(static_cast<int64_t>(i)));
    }
    const TokenizedItems tokenized = tokenize_corpus({.corpus = corpus_,
                                                      .read_options = read_options_,
                                                      .tokenizer = *tokenizer_,
                                                      .beginning = beginning_,
                                                      .item_bytes = recipe_.item_bytes,
                                                      .dtype = stream_.dtype,
                                                      .threads = threads_,
                                                      .max_bad_lines = options_.max_bad_lines,
                                                      .progress = options_.progress},
                                                     items, stream_.items, logger_);
    report_.items = static_cast<int64_t>(items.size());
    report_.items_reused = tokenized.reused;
    stream_.begins.push_back(0);
    for (const WorkItemSummary& summary : tokenized.summaries) {
      stream_.begins.push_back(stream_.begins.back() + summary.tokens);
      statistics_.add(summary.statistics);
    }
    check_limits(statistics_.bad_lines, bad_line_descriptions(), statistics_.invalid_utf8);
  }

  [[noreturn]] void refuse_without_text(const ReadStatistics& statistics) {
    folder_->remove_all();  // so that a run with another text field is not refused
    std::string found;
    if (statistics.empty_documents > 0) {
      found += fmt::format(": {} documents are empty", statistics.empty_documents);
    }
    if (statistics.bad_lines > 0) {
      found += fmt::format("{} {} lines are invalid, the first of them:\n  {}\n",
                           found.empty() ? ":" : ", and", statistics.bad_lines,
                           join(describe_bad_lines(corpus_, statistics.first_bad_lines), "\n  "));
    }
    throw Error("the inputs hold no documents with text{}; give other files, or another text field",
                found);
  }

  std::vector<std::string> bad_line_descriptions() const {
    return describe_bad_lines(corpus_, statistics_.first_bad_lines);
  }

  /// Throws Error if there are more bad lines or broken characters than allowed.
  void check_limits(int64_t bad_lines, const std::vector<std::string>& first,
                    int64_t invalid_utf8) const {
    require_few_bad_lines(bad_lines, options_.max_bad_lines, first);
    if (options_.fail_on_invalid_utf8 && invalid_utf8 > 0) {
      throw Error("the input holds {} pieces of broken UTF-8; mend them, or let them be replaced",
                  invalid_utf8);
    }
  }

  /// Permutes the instances and writes them (Optimus §4, shuffling and sharding).
  void write_shards() {
    const SplitPlan plan = plan_splits(stream_.tokens(), recipe_.context, recipe_.held_out_fraction,
                                       recipe_.shard_tokens);
    if (stream_.tokens() == 0) refuse_without_text(statistics_);
    if (plan.instances == 0) {
      folder_->remove_all();  // so that a run with a shorter context is not refused
      throw Error(
          "a context of {} tokens is longer than the data, which has {} tokens; choose a shorter "
          "context or give more text",
          recipe_.context, stream_.tokens());
    }
    if (plan.held_out == 0 && recipe_.held_out_fraction > 0) {
      logger_.warn("the data is a single instance of {} tokens; nothing is held out",
                   recipe_.context);
    }
    Progress progress;
    const Stopwatch watch;
    const auto show = [&](int64_t done, bool last) {
      if (!options_.progress) return;
      const double fraction = static_cast<double>(done) / static_cast<double>(plan.instances);
      progress.show("writing shards " +
                        Progress::bar(fraction, watch.seconds(),
                                      fmt::format("{} of {} instances", done, plan.instances)),
                    last);
    };
    const Permutation permutation(static_cast<uint64_t>(plan.instances), recipe_.seed);
    GatherResult result =
        gather_shards(stream_, plan, permutation, tokenizer_->end_of_document(), folder_->path(),
                      threads_, [&](int64_t done) { show(done, false); });
    show(plan.instances, true);
    report_.shards_reused = result.shards_reused;
    for (const std::string& name : result.shards_remade) {
      logger_.warn("{} was damaged since an earlier run wrote it; it was made again", name);
    }
    report_.manifest.train = std::move(result.train);
    report_.manifest.held_out = std::move(result.held_out);
  }

  /// Writes the manifest, which makes the folder complete, and removes the work.
  void finish() {
    Manifest& manifest = report_.manifest;
    manifest.recipe = recipe_;
    manifest.tokenizer_kind = tokenizer_->kind();
    manifest.tokenizer_files = tokenizer_->file_hashes();
    manifest.tokenizer_fingerprint = tokenizer_->fingerprint();
    manifest.vocabulary_size = tokenizer_->vocabulary_size();
    manifest.end_of_document = tokenizer_->end_of_document();
    manifest.dtype = stream_.dtype;
    manifest.documents = statistics_.documents;
    manifest.tokens = stream_.tokens();
    manifest.tokens_dropped = stream_.tokens() % recipe_.context;
    manifest.empty_files = corpus_.empty_files;
    manifest.empty_documents = statistics_.empty_documents;
    manifest.bad_lines = statistics_.bad_lines;
    manifest.first_bad_lines = bad_line_descriptions();
    manifest.invalid_utf8 = statistics_.invalid_utf8;
    folder_->require_held();
    write_manifest(folder_->path(), manifest);
    folder_->remove_work();
    warn(manifest);
    logger_.info(
        "{}: {} tokens of {} documents; {} training and {} held-out instances of {} tokens",
        folder_->path().string(), format_count(static_cast<double>(manifest.tokens)),
        manifest.documents, manifest.train.instances, manifest.held_out.instances, recipe_.context);
  }

  void warn(const Manifest& manifest) const {
    if (manifest.bad_lines > 0) {
      logger_.warn("left out {} invalid JSONL lines, the first of them:\n  {}", manifest.bad_lines,
                   join(manifest.first_bad_lines, "\n  "));
    }
    if (manifest.invalid_utf8 > 0) {
      logger_.warn("replaced {} pieces of broken UTF-8 by U+FFFD", manifest.invalid_utf8);
    }
    if (manifest.empty_documents > 0) {
      logger_.warn("left out {} documents without text", manifest.empty_documents);
    }
  }

  const PrepareOptions& options_;
  const Logger& logger_;
  const int threads_;
  const ReadOptions read_options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> beginning_;  // the tokens before each document
  Corpus corpus_;
  Recipe recipe_;
  std::optional<OutputFolder> folder_;
  TokenStream stream_;
  ReadStatistics statistics_;
  PrepareReport report_;
};

}  // namespace

PrepareReport prepare(const PrepareOptions& options, const Logger& logger) {
  return Preparation(options, logger).run();
}

}  // namespace tessera
