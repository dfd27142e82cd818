#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"

namespace tessera {

/// Everything that decides what `prepare` writes: equal recipes give equal bytes. It stands in
/// work/plan.json while the work goes on and in manifest.json afterwards.
struct Recipe {
  int64_t context = 0;  // tokens an instance
  uint64_t seed = 0;    // of the permutation
  double held_out_fraction = 0;
  int64_t shard_tokens = 0;  // at most so many tokens a shard, at least one instance
  int64_t item_bytes = 0;    // text in a work item
  std::string text_field;
  std::string tokenizer;                // "bytes", "sentencepiece" or "trained"
  std::string tokenizer_fingerprint;    // of a tokenizer that was given
  std::string beginning_of_document;    // the token before each document, "" for none
  int64_t trained_vocabulary_size = 0;  // of one that is trained
  int64_t trained_sample_bytes = 0;
  std::vector<CorpusFile> inputs;
};

/// Recipe as JSON text and back. from_text throws Error naming `origin` when it is not one.
std::string recipe_to_text(const Recipe& recipe);
Recipe recipe_from_text(const std::string& text, const std::string& origin);

/// What differs, one line each: "context: 128 there, 256 now". Of the inputs, the first difference.
std::vector<std::string> recipe_differences(const Recipe& there, const Recipe& now);

}  // namespace tessera
