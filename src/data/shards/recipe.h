#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"

namespace tessera {

/// All settings that decide what `prepare` writes: equal recipes give equal bytes. The recipe is
/// stored in work/plan.json during the work and in manifest.json afterwards.
struct Recipe {
  int64_t context = 0;  // tokens per instance
  uint64_t seed = 0;    // the seed of the permutation
  double held_out_fraction = 0;
  int64_t shard_tokens = 0;  // the most tokens of a shard, which has at least one instance
  int64_t item_bytes = 0;    // bytes of text per work item
  std::string text_field;
  std::string tokenizer;                // a Tokenizer::kind(), or "trained"
  std::string tokenizer_fingerprint;    // the fingerprint of a given tokenizer
  std::string beginning_of_document;    // the token before each document, "" for none
  int64_t trained_vocabulary_size = 0;  // the size of a tokenizer to train
  int64_t trained_sample_bytes = 0;
  std::vector<CorpusFile> inputs;
};

/// Convert a recipe to JSON text and back. recipe_from_text() throws Error naming `origin`, the
/// file of the text, when the text is not a recipe.
std::string recipe_to_text(const Recipe& recipe);
Recipe recipe_from_text(const std::string& text, const std::string& origin);

/// Returns the differences between a stored recipe and the current one, one line each: "context:
/// 128 there, 256 now". Of the inputs, only the first difference is listed.
std::vector<std::string> recipe_differences(const Recipe& stored, const Recipe& current);

}  // namespace tessera
