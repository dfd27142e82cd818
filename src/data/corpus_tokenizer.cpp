#include "data/corpus_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/item_tokenizer.h"
#include "data/scratch_pool.h"
#include "data/worker_pool.h"

namespace tessera {
namespace {

constexpr const char* kInterrupted =
    "interrupted while tokenizing; run prepare again, without overwriting, to continue";

int64_t bytes_of(const WorkItem& item) {
  int64_t bytes = 0;
  for (const Slice& slice : item) bytes += slice.end - slice.begin;
  return bytes;
}

/// The work that the threads of this run have done so far, for the progress line.
struct DoneWork {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> tokens{0};
  std::atomic<int64_t> bad_lines{0};
};

/// The progress line of tokenizing.
class TokenizingProgress {
 public:
  /// `before` is the number of bytes, out of `all`, that an earlier run has done.
  TokenizingProgress(const DoneWork& done, int64_t before, int64_t all)
      : done_(done), before_(before), all_(all) {}

  void show(bool last) {
    const int64_t bytes = done_.bytes;
    const double fraction =
        static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, all_ - before_));
    const std::string state =
        fmt::format("{} of {}, {} tokens", format_bytes(before_ + bytes), format_bytes(all_),
                    format_count(static_cast<double>(done_.tokens)));
    progress_.show("tokenizing " + Progress::bar(fraction, watch_.seconds(), state), last);
  }

 private:
  const DoneWork& done_;
  const int64_t before_;
  const int64_t all_;
  Progress progress_;
  Stopwatch watch_;
};

/// One call of tokenize_corpus(): find the missing items, tokenize them in parallel, then tokenize
/// again, one after another, the items that do not begin right.
class CorpusTokenizer {
 public:
  CorpusTokenizer(const CorpusTokens& wanted, const std::vector<WorkItem>& items,
                  const std::vector<fs::path>& paths, const Logger& logger)
      : wanted_(wanted), items_(items), paths_(paths), logger_(logger) {}

  TokenizedItems run() {
    const std::vector<size_t> missing = find_missing();
    if (!missing.empty()) tokenize(missing);
    mend_beginnings();
    return {std::move(summaries_), static_cast<int64_t>(items_.size() - missing.size())};
  }

 private:
  /// Reads the summaries of the items that are done. Returns the indices of the others.
  std::vector<size_t> find_missing() {
    std::vector<size_t> missing;
    summaries_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      std::optional<WorkItemSummary> done;
      if (path_exists(paths_[i])) done = read_work_item(paths_[i], wanted_.dtype);
      if (done) {
        summaries_[i] = std::move(*done);
      } else {
        missing.push_back(i);
      }
    }
    if (missing.size() < items_.size()) {
      logger_.info("continuing: {} of {} work items were tokenized before",
                   items_.size() - missing.size(), items_.size());
    }
    return missing;
  }

  void tokenize(const std::vector<size_t>& missing) {
    int64_t bytes_before = wanted_.corpus.bytes;
    for (const size_t item : missing) bytes_before -= bytes_of(items_[item]);
    DoneWork done;
    for (const WorkItemSummary& summary : summaries_) {
      done.tokens += summary.tokens;
      done.bad_lines += summary.statistics.bad_lines;
    }
    TokenizingProgress progress(done, bytes_before, wanted_.corpus.bytes);
    const auto show = [&](bool last) {
      if (wanted_.progress) progress.show(last);
    };
    run_workers(
        wanted_.threads, static_cast<int64_t>(missing.size()), kInterrupted,
        [&](int64_t i, const std::atomic<bool>& cancelled) {
          const size_t item = missing[static_cast<size_t>(i)];
          WorkItemSummary& summary = summaries_[item];
          summary = item_tokenizer()->run(items_[item], paths_[item], wanted_.dtype, {}, cancelled,
                                          done.tokens);
          done.bytes += bytes_of(items_[item]);
          done.bad_lines += summary.statistics.bad_lines;
          if (done.bad_lines > wanted_.max_bad_lines) {
            require_few_bad_lines(
                done.bad_lines, wanted_.max_bad_lines,
                describe_bad_lines(wanted_.corpus, summary.statistics.first_bad_lines));
          }
        },
        [&] { show(false); });
    show(true);
  }

  ScratchPool<ItemTokenizer>::Lease item_tokenizer() {
    return tokenizers_.lease([&] {
      return std::make_unique<ItemTokenizer>(wanted_.corpus, wanted_.read_options,
                                             wanted_.tokenizer, wanted_.beginning,
                                             wanted_.item_bytes);
    });
  }

  /// Returns whether an item begins at the start of a file, or where the item before it ends.
  bool begins_right(size_t item) const {
    return items_[item].front().begin == 0 || summaries_[item].from == summaries_[item - 1].to;
  }

  /// Tokenizes again each item that does not begin where the item before it ends. The new end of an
  /// item is the start of the next one, so this works on one item at a time. A single worker does
  /// it, because run_workers() handles Ctrl-C.
  void mend_beginnings() {
    size_t first = 0;
    while (first < items_.size() && begins_right(first)) ++first;
    if (first == items_.size()) return;
    logger_.info("tokenizing again where the parts of a file did not join, from work item {} of {}",
                 first, items_.size());
    run_workers(
        1, 1, kInterrupted,
        [&](int64_t, const std::atomic<bool>& cancelled) {
          const auto tokenizer = item_tokenizer();
          std::atomic<int64_t> tokens{0};
          for (size_t i = first; i < items_.size(); ++i) {
            if (begins_right(i)) continue;
            summaries_[i] = tokenizer->run(items_[i], paths_[i], wanted_.dtype,
                                           summaries_[i - 1].to, cancelled, tokens);
          }
        },
        [] {});
  }

  const CorpusTokens& wanted_;
  const std::vector<WorkItem>& items_;
  const std::vector<fs::path>& paths_;
  const Logger& logger_;
  std::vector<WorkItemSummary> summaries_;
  ScratchPool<ItemTokenizer> tokenizers_;  // one per thread
};

}  // namespace

std::vector<std::string> describe_bad_lines(const Corpus& corpus,
                                            const std::vector<BadLine>& lines) {
  std::vector<std::string> descriptions;
  for (const BadLine& line : lines) descriptions.push_back(describe_bad_line(corpus, line));
  return descriptions;
}

void require_few_bad_lines(int64_t bad_lines, int64_t allowed,
                           const std::vector<std::string>& first) {
  if (bad_lines <= allowed) return;
  throw Error(
      "the JSONL input holds {} or more invalid lines; at most {} are allowed:\n  {}\nmend "
      "them, or allow more (max_bad_lines)",
      bad_lines, allowed, join(first, "\n  "));
}

TokenizedItems tokenize_corpus(const CorpusTokens& wanted, const std::vector<WorkItem>& items,
                               const std::vector<fs::path>& paths, const Logger& logger) {
  return CorpusTokenizer(wanted, items, paths, logger).run();
}

}  // namespace tessera
