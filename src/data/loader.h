#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sources/open_data.h"

namespace tessera {

/// Where in one source a loader stands.
struct SourcePosition {
  int64_t epoch = 0;
  int64_t instance = 0;  // in [0, instances)
  int64_t drawn = 0;     // instances since the mix has these weights

  bool operator==(const SourcePosition&) const = default;
};

/// Where in the data a loader stands; all that a checkpoint needs to go on exactly there. It does
/// not depend on how many parts share the data.
struct LoaderState {
  std::vector<SourcePosition> sources;  // in the order of the data's; empty: the start of all

  bool operator==(const LoaderState&) const = default;
};

/// Instances as a model takes them. Every array is [rows, context], row after row.
struct Batch {
  int64_t rows = 0;
  int64_t context = 0;
  std::vector<int32_t> tokens;
  /// The token that follows in the row; -1 (no target) at each row's last position.
  std::vector<int32_t> targets;
  /// The position in the row at which the document of this position starts. A document ends with
  /// its end-of-document token, which still belongs to it.
  std::vector<int32_t> document_starts;
  /// 0 to context - 1.
  std::vector<int32_t> positions;
  int64_t target_count = 0;  // targets other than -1

  bool operator==(const Batch&) const = default;
};

/// Fills a Batch's other arrays from its tokens.
void complete_batch(Batch& batch, int32_t end_of_document);

struct LoaderOptions {
  Split split = Split::train;
  int64_t rows = 1;  // instances a batch
  /// The data is shared by `parts` loaders: each call of next() moves all of them on by
  /// parts * rows instances, of which part p takes the p-th `rows`.
  int64_t part = 0;
  int64_t parts = 1;
  int64_t read_ahead = 4;  // batches prepared before they are asked for, at least
  /// That of the model that takes the batches, which may be smaller than the tokenizer's: an id
  /// outside it is an Error that names file and place. 0: no model, or one for the whole tokenizer.
  int64_t vocabulary_size = 0;
  LoaderState start;
};

/// Hands out instances of a split of the data's sources, which of them by Mix, and each source's in
/// the order of its epochs, one after another. A batch that reaches past the end of a source goes
/// on at its start, so none is short. A thread of the loader's own prepares the next batches. One
/// thread at a time may use a loader.
class Loader {
 public:
  /// Throws Error when a source has nothing in that split, and on options out of range.
  Loader(const TrainingData& data, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch. Throws Error when its data is damaged, naming file and place; so does every
  /// later call until seek().
  Batch next();
  /// The next batches, as next() gives them; where it throws, those before are lost and state() is
  /// behind them. From then on as many are prepared ahead, so that one
  /// who takes several at a time waits for none.
  std::vector<Batch> next(int64_t batches);
  /// Batches that are prepared and not taken yet.
  int64_t ready() const;
  /// The position of the batch that next() returns next, whatever was read ahead.
  const LoaderState& state() const;
  /// Goes to a position. Throws Error when it is outside the data.
  void seek(const LoaderState& state);

  int64_t context() const;
  int64_t instances(size_t source = 0) const;  // of an epoch

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tessera
