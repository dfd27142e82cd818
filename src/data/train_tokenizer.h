#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/tokenizer.h"

namespace tessera {

/// A sample of lines of text, and the statistics of reading it.
struct SampledLines {
  std::vector<std::string> lines;
  ReadStatistics statistics;
};

/// Returns lines of text, evenly spread over the whole corpus, of about `maximum_bytes` in all (the
/// whole corpus if it is smaller). Of a compressed file it takes only the beginning. The same
/// corpus gives the same lines.
SampledLines sample_lines(const Corpus& corpus, int64_t maximum_bytes, const ReadOptions& options);

/// Trains a SentencePiece model (byte-pair encoding with byte fallback) of exactly
/// `vocabulary_size` pieces. The model normalises nothing, so decode(encode(x)) == x for any valid
/// UTF-8. The same lines give the same model. Throws Error when the vocabulary is too small for the
/// byte pieces and the characters, or larger than the lines can fill.
std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<std::string>& lines,
                                           int64_t vocabulary_size);

}  // namespace tessera
