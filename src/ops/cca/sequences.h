#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/cca/token_order.h"
#include "program/builder.h"

namespace tessera {

/// The order of the tokens in an operation that reads tokens before the current one.
struct SequenceOptions {
  int64_t sequence = 0;  ///< tokens of one sequence; tokens = sequences · sequence
  /// i32 [tokens]: for each token, the position of the first token of its document within its
  /// sequence, as attention takes them (ops/attention/attention.h, which checks them). Without
  /// them a sequence is one document.
  std::optional<Value> document_starts = {};
};

/// The last inputs of an operation, which say how its tokens follow one another. For whole
/// sequences, this is the document starts, or no input if they are not given. For tokens that
/// continue one sequence, it is the position of the first token.
class SequenceInputs {
 public:
  /// The inputs for whole sequences.
  explicit SequenceInputs(const SequenceOptions& options)
      : sequence_(options.sequence), has_documents_(options.document_starts.has_value()) {}
  /// Returns the inputs for one sequence that is continued.
  static SequenceInputs continued();

  bool is_continued() const { return is_continued_; }
  size_t count() const { return size_t{has_documents_ || is_continued_}; }
  /// Returns the label of the dim of tokens. A rank needs whole sequences.
  std::string token_label() const { return is_continued_ ? "s!" : "(b s!)"; }
  /// Returns the labels of the inputs, each after a comma.
  std::string labels() const;

  /// Throws InternalError if the last input does not fit `tokens`, if `tokens` does not fit an
  /// int32, or if it is not a number of whole sequences (unless a sequence is continued).
  void expect(const Operation& operation, std::span<const Spec> inputs, int64_t tokens) const;
  /// Returns the order of the tokens. It points to the last input.
  TokenOrder order(std::span<const Tensor> inputs) const;

 private:
  SequenceInputs() = default;

  int64_t sequence_ = 0;
  bool has_documents_ = false;
  bool is_continued_ = false;
};

/// Updates the state of a sequence that is continued: the rows of its newest tokens, the latest
/// last. `rows`, [tokens, width], are the rows of the new tokens. If `rows` has fewer rows than
/// `state`, the last rows of `state` move up to make room.
void keep_last_rows(const Execution& execution, const Tensor& rows, const Tensor& state);

/// Returns the inputs of an operation, followed by the document starts if `options` has them.
std::vector<Value> with_documents(std::vector<Value> inputs, const SequenceOptions& options);

}  // namespace tessera
