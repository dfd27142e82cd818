#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/item_tokenizer.h"
#include "data/scratch_pool.h"
#include "data/shards/work_item.h"
#include "data/tokenizer.h"

namespace tessera {

/// The arguments of CorpusTokenizer. The objects that they refer to must outlive it.
struct CorpusTokens {
  const Corpus& corpus;
  const ReadOptions& read_options;
  const Tokenizer& tokenizer;
  const std::vector<int32_t>& beginning;  ///< the tokens before each document
  int64_t item_bytes = 0;                 ///< see plan_items()
  DType dtype = DType::u16;               ///< the type of the ids in the items' files
  int threads = 1;
  int64_t max_bad_lines = 0;
  bool progress = true;
};

/// Returns "corpus/a.jsonl:17: reason" for each line.
std::vector<std::string> describe_bad_lines(const Corpus& corpus,
                                            const std::vector<BadLine>& lines);

/// Throws Error when there are more bad lines than `allowed`. The message lists `first`, the first
/// of them.
void require_few_bad_lines(int64_t bad_lines, int64_t allowed,
                           const std::vector<std::string>& first);

/// A tokenizer of the work items of a corpus, on several threads (Optimus §4, tokenization). It
/// skips the items that an earlier run has tokenized.
class CorpusTokenizer {
 public:
  /// `paths` are the files of `items`, in the same order.
  CorpusTokenizer(const CorpusTokens& wanted, const std::vector<WorkItem>& items,
                  const std::vector<fs::path>& paths, const Logger& logger);

  /// Returns a summary of each item. Throws Error as read_slice() does, when there are more bad
  /// lines than allowed, and when it is interrupted. A later run continues from there.
  std::vector<WorkItemSummary> run();

  /// Returns the number of items that an earlier run had tokenized.
  int64_t items_reused() const { return items_reused_; }

 private:
  /// Reads the summaries of the items that are done. Returns the indices of the others.
  std::vector<size_t> find_missing();
  void tokenize(const std::vector<size_t>& missing);
  bool joins(size_t item) const;
  /// Tokenizes again each item that does not begin where the item before it ends (see
  /// ItemTokenizer). Each item's end is the next one's begin, so this works on one item at a time.
  void join();
  ScratchPool<ItemTokenizer>::Lease item_tokenizer();

  const CorpusTokens wanted_;
  const std::vector<WorkItem>& items_;
  const std::vector<fs::path>& paths_;
  const Logger& logger_;
  std::vector<WorkItemSummary> summaries_;
  int64_t items_reused_ = 0;
  ScratchPool<ItemTokenizer> tokenizers_;  // one per thread
};

}  // namespace tessera
