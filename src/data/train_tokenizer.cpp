#include "data/train_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include <sentencepiece_trainer.h>

#include "base/error.h"
#include "data/sentencepiece_tokenizer.h"

namespace tessera {
namespace {

constexpr int64_t kSampleBlock = int64_t{64} << 10;  // bytes of the corpus to read at once
constexpr size_t kLongestLine = 4096;                // SentencePiece skips longer ones; we cut them
constexpr int64_t kBytesAndControls = 256 + 3;       // byte pieces; unknown, begin, end

/// The sample, in the form in which SentencePiece reads it.
class LineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

/// Thrown to stop reading a compressed file, from which the sample takes only the start.
struct EnoughRead {};

void add_lines(std::string_view text, std::vector<std::string>& lines) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    while (!line.empty()) {
      const std::string_view part = first_piece(line, kLongestLine);
      lines.emplace_back(part);
      line.remove_prefix(part.size());
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

/// Adds the lines of a slice. From a compressed file it takes about the first `maximum_bytes`.
void add_slice(const Corpus& corpus, const Slice& slice, const ReadOptions& options,
               int64_t maximum_bytes, SampledLines& sample) {
  const bool is_compressed =
      corpus.files[static_cast<size_t>(slice.file)].compression != Compression::none;
  int64_t bytes = 0;
  ReadStatistics statistics;
  try {
    read_slice(corpus, slice, options, statistics, [&](std::string_view piece, bool) {
      if (is_compressed && bytes >= maximum_bytes) throw EnoughRead();
      add_lines(piece, sample.lines);
      bytes += static_cast<int64_t>(piece.size());
    });
  } catch (const EnoughRead&) {
  }
  sample.statistics.add(statistics);
}

}  // namespace

SampledLines sample_lines(const Corpus& corpus, int64_t maximum_bytes, const ReadOptions& options) {
  SampledLines sample;
  const std::vector<WorkItem> blocks = plan_items(corpus, kSampleBlock);
  const int64_t count = static_cast<int64_t>(blocks.size());
  const int64_t wanted = std::clamp<int64_t>(maximum_bytes / kSampleBlock, 1, count);
  const int64_t share = maximum_bytes / wanted;  // at least one block, if there are many
  for (int64_t i = 0; i < wanted; ++i) {
    for (const Slice& slice : blocks[static_cast<size_t>(i * count / wanted)]) {
      add_slice(corpus, slice, options, share, sample);
    }
  }
  return sample;
}

std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<std::string>& lines,
                                           int64_t vocabulary_size) {
  if (vocabulary_size <= kBytesAndControls) {
    throw Error("a vocabulary of {} is too small: the byte and control pieces alone are {}",
                vocabulary_size, kBytesAndControls);
  }
  // A newline or a tab never occurs inside a longer piece, because each is its own byte piece. A
  // text can therefore be cut at any line end and still encodes to the same tokens.
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      {"byte_fallback", "true"},
      {"character_coverage", "0.9995"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      {"max_sentence_length", std::to_string(kLongestLine)},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"minloglevel", "2"},
  };
  LineIterator iterator(lines);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  if (!status.ok()) {
    throw Error(
        "cannot train a tokenizer of {} pieces on {} lines of text: {}; choose another vocabulary "
        "size or give more text",
        vocabulary_size, lines.size(), status.message());
  }
  return std::make_unique<SentencePieceTokenizer>(std::move(model), "the trained tokenizer");
}

}  // namespace tessera
