#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/shards/work_item.h"
#include "data/tokenizer.h"

namespace tessera {

/// Returns "corpus/a.jsonl:17: reason" for each line.
std::vector<std::string> describe_bad_lines(const Corpus& corpus,
                                            const std::vector<BadLine>& lines);

/// Throws Error when there are more bad lines than `allowed`. The message lists `descriptions`, the
/// descriptions of the first bad lines.
void require_few_bad_lines(int64_t bad_lines, int64_t allowed,
                           const std::vector<std::string>& descriptions);

/// What tokenize_corpus() is to do.
struct TokenizeTask {
  const Corpus& corpus;
  const ReadOptions& read_options;
  const Tokenizer& tokenizer;
  const std::vector<int32_t>& beginning;  ///< the tokens before each document
  int64_t item_bytes = 0;                 ///< see plan_items()
  DType dtype = DType::u16;               ///< the type of the ids in the items' files
  int threads = 1;
  int64_t max_bad_lines = 0;
  bool progress = true;  ///< show a progress line
};

/// The result of tokenize_corpus().
struct TokenizedItems {
  std::vector<WorkItemSummary> summaries;  // one per item, in their order
  int64_t reused = 0;                      // the items that an earlier run had tokenized
};

/// Tokenizes the work items of a corpus on several threads (Optimus §4, tokenization). `paths` are
/// the files of `items`, in the same order. Items that an earlier run has tokenized are kept.
/// Throws Error as read_slice() does, when there are more bad lines than allowed, and when it is
/// interrupted. A later call then continues with the items that are missing.
///
/// If several items share a plain-text file, an item may not begin where the item before it ends
/// (see ItemTokenizer). Such items are tokenized again at the end.
TokenizedItems tokenize_corpus(const TokenizeTask& task, const std::vector<WorkItem>& items,
                               const std::vector<fs::path>& paths, const Logger& logger);

}  // namespace tessera
