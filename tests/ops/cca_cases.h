#pragma once

#include <algorithm>
#include <vector>

#include <rapidcheck.h>

#include "ops/cca/sequences.h"
#include "support/run_program.h"

namespace tessera::testing {

/// Sequences of tokens, and the documents that are packed into them.
struct PackedSequences {
  int64_t sequences = 1;
  int64_t sequence = 1;
  std::vector<int32_t> starts;  ///< of each token's document; empty: a sequence is one document

  int64_t tokens() const { return sequences * sequence; }

  /// Declares the document starts, if there are any.
  SequenceOptions options(Builder& builder) const {
    SequenceOptions options{.sequence = sequence};
    if (!starts.empty()) {
      options.document_starts = builder.input("document_starts", {{tokens()}, DType::i32, {}});
    }
    return options;
  }
  FixedInputs fixed() const {
    if (starts.empty()) return {};
    const Tensor tensor({tokens()}, DType::i32);
    std::ranges::copy(starts, tensor.data<int32_t>());
    return {{"document_starts", tensor}};
  }
  /// The first token of a token's document, counted over all sequences.
  int64_t first_token(int64_t token) const {
    const int64_t start = starts.empty() ? 0 : starts[static_cast<size_t>(token)];
    return token / sequence * sequence + start;
  }
};

/// Sequences of documents of these lengths.
inline PackedSequences packed(const std::vector<std::vector<int64_t>>& lengths) {
  PackedSequences result{.sequences = std::ssize(lengths), .sequence = 0, .starts = {}};
  for (const std::vector<int64_t>& sequence : lengths) {
    int64_t start = 0;
    for (const int64_t length : sequence) {
      result.starts.insert(result.starts.end(), static_cast<size_t>(length),
                           static_cast<int32_t>(start));
      start += length;
    }
    result.sequence = start;
  }
  return result;
}

/// Up to four sequences of up to `longest` tokens, mostly short ones, whose documents are as short
/// as one token.
inline PackedSequences random_sequences(int64_t longest) {
  PackedSequences result{.sequences = *rc::gen::inRange<int64_t>(1, 5),
                         .sequence = *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 4),
                                                     rc::gen::inRange<int64_t>(1, longest + 1)),
                         .starts = {}};
  if (*rc::gen::arbitrary<bool>()) return result;
  const int one_in = *rc::gen::element(1, 2, 5);
  for (int64_t token = 0; token < result.tokens(); ++token) {
    const auto index = static_cast<int32_t>(token % result.sequence);
    const bool begins = index == 0 || *rc::gen::inRange(0, one_in) == 0;
    result.starts.push_back(begins ? index : result.starts.back());
  }
  return result;
}

/// The numbers of a random input of run_program() in f64, by its index.
inline std::vector<double> random_input(const std::vector<RunInput>& inputs, size_t index) {
  return as_doubles(random_tensor(inputs[index].shape, DType::f64, fmt::format("input{}", index)));
}

}  // namespace tessera::testing
