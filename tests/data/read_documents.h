#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data/corpus/documents.h"

namespace tessera::testing {

/// What reading a corpus gave.
struct ReadDocuments {
  std::vector<std::string> documents;
  ReadStatistics statistics;
  size_t longest_piece = 0;
};

/// Reads a whole corpus in items of `item_bytes`, each slice as it comes.
inline ReadDocuments read_all(const Corpus& corpus, int64_t item_bytes,
                              const ReadOptions& options = {}) {
  ReadDocuments read;
  std::string document;
  for (const WorkItem& item : plan_items(corpus, item_bytes)) {
    for (const Slice& slice : item) {
      read_slice(corpus, slice, options, read.statistics,
                 [&](std::string_view piece, bool ends_document) {
                   read.longest_piece = std::max(read.longest_piece, piece.size());
                   document += piece;
                   if (ends_document) read.documents.push_back(std::exchange(document, ""));
                 });
    }
  }
  EXPECT_EQ(document, "") << "a document without its end";
  EXPECT_EQ(read.statistics.documents, static_cast<int64_t>(read.documents.size()));
  return read;
}

}  // namespace tessera::testing
