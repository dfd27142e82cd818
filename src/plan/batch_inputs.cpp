// Writes a loader's batch into a program's inputs. A Batch (data/loader.h) holds the sequences of
// one data-parallel rank: four arrays of i32 [sequences · context], the tokens, targets, positions
// and document starts of its part of the micro-batch. An input holds only the rank's piece of the
// whole micro-batch. The input's distribution (distribute_tokens() in model/model_writer.cpp) says
// which: with context parallelism, a part of the positions of each sequence, in zigzag.

#include "plan/batch_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "comm/tensor_piece.h"
#include "data/tokenizer.h"
#include "tensor/dispatch.h"

namespace tessera {

void BatchInputs::fill(Executor& executor, int program, int micro_batch, const Batch& batch) const {
  if (values.tokens) require_in_vocabulary(batch.tokens, vocabulary_size);
  if (values.targets) {
    require_in_vocabulary(batch.targets, vocabulary_size, nullptr, /*smallest_id=*/-1);
  }
  const auto copy = [&](const std::vector<int32_t>& from, Value to) {
    if (!to) return;  // the chunk has no such input
    const int64_t count = std::ssize(from);
    write_piece(executor, program, micro_batch, to, {batch.parts * count}, from,
                batch.part * count);
  };
  copy(batch.tokens, values.tokens);
  copy(batch.targets, values.targets);
  copy(batch.positions, values.positions);
  if (values.document_starts) copy(batch.document_starts, *values.document_starts);
}

int64_t vocabulary_size_of(const ParameterList& parameters) {
  const auto found =
      std::ranges::find(parameters.specs(), ParameterRole::embedding, &ParameterSpec::role);
  TESSERA_CHECK(found != parameters.specs().end(), "a model without an embedding");
  return found->shape[0];
}

void write_piece(Executor& executor, int program, int micro_batch, Value to, const Shape& whole,
                 std::span<const int32_t> numbers, int64_t first) {
  const Program& owner = executor.program(program);
  const TensorPiece piece(owner.mesh(), owner.spec(to).distribution, whole, owner.rank());
  const Tensor& tensor = executor.tensor(to, program, micro_batch);
  TESSERA_CHECK(piece.shape() == tensor.shape() && first + std::ssize(numbers) <= whole.elements(),
                "{} numbers of {}, from the {}th on, for a program's {}", numbers.size(),
                whole.text(), first, tensor.shape().text());
  if (piece.is_whole()) {
    executor.write(std::as_bytes(numbers), tensor);
    return;
  }
  std::vector<int32_t> own_numbers(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < own_numbers.size(); ++i) {
    const int64_t index = piece.element_of_whole(static_cast<int64_t>(i)) - first;
    TESSERA_CHECK(index >= 0 && index < std::ssize(numbers),
                  "{} numbers, and a rank needs the {}th", numbers.size(), index);
    own_numbers[i] = numbers[static_cast<size_t>(index)];
  }
  executor.write(std::as_bytes(std::span(own_numbers)), tensor);
}

void write_scalar(Executor& executor, const Tensor& tensor, double value) {
  dispatch_wide(tensor.dtype(), [&](auto type) {
    const auto wide = static_cast<decltype(type)>(value);
    executor.write(std::as_bytes(std::span(&wide, 1)), tensor);
  });
}

}  // namespace tessera
