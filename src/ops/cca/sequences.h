#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/cca/token_order.h"
#include "program/builder.h"

namespace tessera {

/// How the tokens follow one another in an operation that reads tokens before its own.
struct SequenceOptions {
  int64_t sequence = 0;  ///< tokens of one sequence; tokens = sequences · sequence
  /// i32 [tokens]: for each token, the position of the first token of its document within its
  /// sequence, as attention takes them (ops/attention/attention.h, which checks them). Without
  /// them a sequence is one document.
  std::optional<Value> document_starts = {};
};

/// The inputs of an operation that say how its tokens follow one another. They are its last ones.
/// Either they are the document starts of whole sequences, if these are given; or the tokens
/// continue one sequence, and the input is the position of the first of them.
class SequenceInputs {
 public:
  /// Of whole sequences.
  explicit SequenceInputs(const SequenceOptions& options)
      : sequence_(options.sequence), documents_(options.document_starts.has_value()) {}
  /// Of one sequence that is continued.
  static SequenceInputs continued();

  bool is_continued() const { return continued_; }
  size_t count() const { return size_t{documents_ || continued_}; }
  /// The label of the dim of tokens. A rank needs whole sequences.
  std::string tokens() const { return continued_ ? "s!" : "(b s!)"; }
  /// The labels of the inputs, each after a comma.
  std::string labels() const;

  /// Throws InternalError if the last inputs do not fit `tokens`, or these are not whole sequences.
  void expect(const Operation& operation, std::span<const Spec> inputs, int64_t tokens) const;
  TokenOrder order(std::span<const Tensor> inputs) const;

 private:
  SequenceInputs() = default;

  int64_t sequence_ = 0;
  bool documents_ = false;
  bool continued_ = false;
};

/// The inputs of an operation, followed by the document starts if they are given.
std::vector<Value> with_documents(std::vector<Value> inputs, const SequenceOptions& options);

}  // namespace tessera
