#include "plan/program_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "data/vocabulary.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

void set_scalar(const Tensor& tensor, double value) {
  dispatch_wide(tensor.dtype(), [&](auto type) {
    using Wide = decltype(type);
    *tensor.data<Wide>() = static_cast<Wide>(value);
  });
}

/// The tokens that a model has.
int64_t embedding_rows(const ParameterList& parameters) {
  const auto found =
      std::ranges::find(parameters.specs(), ParameterRole::embedding, &ParameterSpec::role);
  TESSERA_CHECK(found != parameters.specs().end(), "a model without an embedding");
  return found->shape[0];
}

}  // namespace

ProgramInputs::ProgramInputs(const TrainingProgram& training, MemoryPool& pool, Frame& frame)
    : vocabulary_size_(embedding_rows(training.parameters)) {
  const auto make = [&](Value value) {
    const Spec& spec = training.program.spec(value);
    Tensor tensor(pool, spec.shape, spec.dtype);
    frame.bind(value, tensor);
    return tensor;
  };
  tokens_ = make(training.tokens);
  targets_ = make(training.targets);
  positions_ = make(training.positions);
  if (training.document_starts) document_starts_ = make(*training.document_starts);
  if (training.target_seed) {
    target_seed_ = make(training.target_seed);
    token_seed_ = make(training.token_seed);
  }
}

void ProgramInputs::fill(const Batch& batch) const {
  require_in_vocabulary(batch.tokens, vocabulary_size_);
  require_in_vocabulary(batch.targets, vocabulary_size_, nullptr, /*least=*/-1);
  const auto copy = [](const std::vector<int32_t>& from, const Tensor& to) {
    if (!to.defined()) return;
    TESSERA_CHECK(static_cast<int64_t>(from.size()) == to.elements(),
                  "a batch of {} tokens for a program of {}", from.size(), to.elements());
    std::ranges::copy(from, to.data<int32_t>());
  };
  copy(batch.tokens, tokens_);
  copy(batch.targets, targets_);
  copy(batch.positions, positions_);
  copy(batch.document_starts, document_starts_);
}

void ProgramInputs::set_seeds(int64_t global_targets, int64_t global_tokens) const {
  set_scalar(target_seed_, 1.0 / static_cast<double>(std::max<int64_t>(global_targets, 1)));
  set_scalar(token_seed_, 1.0 / static_cast<double>(global_tokens));
}

}  // namespace tessera
