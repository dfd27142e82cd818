#include "ops/cca/sequences.h"

#include <limits>

#include "ops/support.h"

namespace tessera {

SequenceInputs SequenceInputs::continued() {
  SequenceInputs inputs;
  inputs.continued_ = true;
  return inputs;
}

std::string SequenceInputs::labels() const {
  if (continued_) return ", u!";
  return documents_ ? ", (b s)" : "";
}

void SequenceInputs::expect(const Operation& operation, std::span<const Spec> inputs,
                            int64_t tokens) const {
  TESSERA_EXPECT(operation, tokens <= std::numeric_limits<int32_t>::max(), "{} tokens", tokens);
  TESSERA_EXPECT(operation, continued_ || (sequence_ > 0 && tokens % sequence_ == 0),
                 "{} tokens are not whole sequences of {}", tokens, sequence_);
  if (count() == 0) return;
  const Spec& last = inputs.back();
  const Shape expected{continued_ ? 1 : tokens};
  TESSERA_EXPECT(operation, last.dtype == DType::i32 && last.shape == expected,
                 "{} {} {}; i32 {} is expected", continued_ ? "a position" : "document starts",
                 dtype_name(last.dtype), last.shape.text(), expected.text());
}

TokenOrder SequenceInputs::order(std::span<const Tensor> inputs) const {
  TokenOrder order;
  if (continued_) {
    order.position = inputs.back().pointer<int32_t>();
  } else {
    order.sequence = static_cast<int32_t>(sequence_);
    if (documents_) order.document_starts = inputs.back().pointer<int32_t>();
  }
  return order;
}

std::vector<Value> with_documents(std::vector<Value> inputs, const SequenceOptions& options) {
  if (options.document_starts) inputs.push_back(*options.document_starts);
  return inputs;
}

}  // namespace tessera
