#include "ops/cca/sequences.h"

#include <algorithm>
#include <limits>

#include "device/stream.h"
#include "ops/support.h"

namespace tessera {

SequenceInputs SequenceInputs::continued() {
  SequenceInputs inputs;
  inputs.is_continued_ = true;
  return inputs;
}

std::string SequenceInputs::labels() const {
  if (is_continued_) return ", u!";
  return has_documents_ ? ", (b s)" : "";
}

void SequenceInputs::expect(const Operation& operation, std::span<const Spec> inputs,
                            int64_t tokens) const {
  TESSERA_EXPECT(operation, tokens <= std::numeric_limits<int32_t>::max(), "{} tokens", tokens);
  TESSERA_EXPECT(operation, is_continued_ || (sequence_ > 0 && tokens % sequence_ == 0),
                 "{} tokens are not whole sequences of {}", tokens, sequence_);
  if (count() == 0) return;
  const Spec& last = inputs.back();
  const Shape expected{is_continued_ ? 1 : tokens};
  TESSERA_EXPECT(operation, is_like(last, {expected, DType::i32}), "{} {}; i32 {} is expected",
                 is_continued_ ? "a position" : "document starts", text_of(last), expected.text());
}

TokenOrder SequenceInputs::order(std::span<const Tensor> inputs) const {
  TokenOrder order;
  if (is_continued_) {
    order.position = inputs.back().pointer<int32_t>();
  } else {
    order.sequence = static_cast<int32_t>(sequence_);
    if (has_documents_) order.document_starts = inputs.back().pointer<int32_t>();
  }
  return order;
}

void keep_last_rows(const Execution& execution, const Tensor& rows, const Tensor& state) {
  const int64_t state_rows = state.shape()[0];
  const int64_t row_bytes = state.bytes() / state_rows;
  const auto copy = [&](const Tensor& from, int64_t from_row, int64_t to_row) {
    const auto* const source = static_cast<const std::byte*>(from.address()) + from_row * row_bytes;
    auto* const target = static_cast<std::byte*>(state.address()) + to_row * row_bytes;
    if (execution.stream != nullptr) {
      execution.stream->copy(target, source, row_bytes);
    } else {
      std::copy_n(source, row_bytes, target);
    }
  };
  const int64_t tokens = rows.shape()[0];
  // Ascending, so that a row of the state has moved up before it is overwritten.
  for (int64_t row = 0; row < state_rows; ++row) {
    const int64_t token = tokens - state_rows + row;
    token < 0 ? copy(state, row + tokens, row) : copy(rows, token, row);
  }
}

std::vector<Value> with_documents(std::vector<Value> inputs, const SequenceOptions& options) {
  if (options.document_starts) inputs.push_back(*options.document_starts);
  return inputs;
}

}  // namespace tessera
