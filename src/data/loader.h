#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sources/open_data.h"

namespace tessera {

/// A loader's position in one source.
struct SourcePosition {
  int64_t epoch = 0;
  int64_t instance = 0;  // in [0, instances)
  int64_t drawn = 0;     // instances drawn since the mix has had these weights
  bool operator==(const SourcePosition&) const = default;
};

/// A loader's position in the data: all that a checkpoint needs to continue there exactly. It does
/// not depend on the number of loaders that share the data.
struct LoaderState {
  std::vector<SourcePosition> sources;  // in the data's order; empty: the start of all sources
  bool operator==(const LoaderState&) const = default;
};

/// A batch of instances as the input of a model. Every array is [rows, context], row after row.
struct Batch {
  int64_t rows = 0;
  int64_t context = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // the next token of the row; -1 (no target) at a row's end
  /// The position in the row at which the token's document starts; 0 if it began before the row. A
  /// document includes its end-of-document token.
  std::vector<int32_t> document_starts;
  std::vector<int32_t> positions;  // in the row: 0 to context - 1
  /// The index of this batch among `parts` equal ones, which several ranks compute together.
  int64_t part = 0;
  int64_t parts = 1;
  int64_t target_count = 0;  // the targets other than -1 in all parts
  bool operator==(const Batch&) const = default;
};

/// Fills a Batch's other arrays, and its number of targets, from its tokens.
void complete_batch(Batch& batch, int32_t end_of_document);

/// The instances that a loader reads, and how far ahead it reads them.
struct LoaderOptions {
  Split split = Split::train;
  int64_t rows = 1;  // instances per batch
  /// `parts` loaders share the data. Each call of next() advances all of them by parts * rows
  /// instances. A loader reads only its own rows of these: [part * rows, (part + 1) * rows).
  int64_t part = 0;
  int64_t parts = 1;
  int64_t read_ahead = 4;  // batches to prepare ahead; next(batches) may raise it
  /// The vocabulary size of the model, or 0 if it is not known. It may be smaller than the
  /// tokenizer's. An id outside it is an Error that names the file and the token's index in it.
  int64_t vocabulary_size = 0;
  LoaderState start;
};

/// A loader of the instances of one split of the data's sources. An instance is a row of `context`
/// tokens. Mix decides which source comes next. Each source's instances come in the order of its
/// epochs, one epoch after another. A batch that reaches the end of a source continues at its
/// start, so no batch is short. The loader prepares the next batches in a thread of its own. One
/// thread at a time may use a loader.
class Loader {
 public:
  /// Throws Error when a source has no instances in the split, and when an option is out of range.
  Loader(const TrainingData& data, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Returns the next batch. Throws Error naming the file and the damaged part when its data is
  /// damaged. Every later call then throws too, until seek().
  Batch next();
  /// Returns the next `batches` batches, as next() does. If it throws, the batches before the
  /// damaged one are lost, and state() is the position after them. From then on, until seek(), at
  /// least `batches` are prepared ahead, so a caller that takes several at a time does not wait.
  std::vector<Batch> next(int64_t batches);
  /// Returns the number of batches that are prepared but not taken yet.
  int64_t ready_batches() const;
  /// Returns the position of the batch that next() returns next. Reading ahead does not change it.
  const LoaderState& state() const;
  /// Moves to a position. Throws Error when it is outside the data, or when its counts do not fit
  /// the sources' weights.
  void seek(const LoaderState& state);

  int64_t context() const;
  int64_t instances(size_t source = 0) const;  // per epoch

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tessera
