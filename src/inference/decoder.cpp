#include "inference/decoder.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/tokenizer.h"
#include "engine/executor.h"

namespace tessera {
namespace {

constexpr Action kDecode{.segment = Segment::whole};  // of the executor's only program

}  // namespace

/// The program for one number of tokens, ready to run.
struct Decoder::Step {
  Step(DecodingProgram program, const GivenTensors& given, Runtime& runtime)
      : decoding(std::move(program)),
        executor({&decoding.program}, std::span(&kDecode, 1), runtime, given) {}
  DecodingProgram decoding;
  Executor executor;
};

Decoder::Decoder(const ModelConfig& config, DType compute, const GivenTensors& weights,
                 int64_t capacity, Runtime& runtime)
    : config_(config), compute_(compute), capacity_(capacity), runtime_(runtime), given_(weights) {}

Decoder::~Decoder() = default;

Tensor Decoder::feed(std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  TESSERA_CHECK(cached_tokens_ + count <= capacity_, "{} tokens after {} in a cache of {}", count,
                cached_tokens_, capacity_);
  require_in_vocabulary(tokens, config_.vocabulary_size);
  Step& step = step_for(count);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(cached_tokens_));
  const auto first = static_cast<int32_t>(cached_tokens_);
  step.executor.write(std::as_bytes(tokens), step.executor.tensor(step.decoding.tokens));
  step.executor.write(std::as_bytes(std::span(positions)),
                      step.executor.tensor(step.decoding.positions));
  step.executor.write(std::as_bytes(std::span(&first, 1)),
                      step.executor.tensor(step.decoding.first_position));
  step.executor.run(kDecode);
  cached_tokens_ += count;
  return step.executor.tensor(step.decoding.logits);
}

void Decoder::add_caches(const Program& program) {
  for (const ValueInfo& value : program.values()) {
    if (value.kind != ValueKind::state || given_.contains(value.name)) continue;
    cache_memory_.push_back(std::make_unique<Arena>(value.spec.bytes(), runtime_.accelerator()));
    given_.emplace(value.name, cache_memory_.back()->at(0, value.spec.shape, value.spec.dtype));
  }
}

Decoder::Step& Decoder::step_for(int64_t count) {
  if (const auto found = steps_.find(count); found != steps_.end()) return *found->second;
  DecodingProgram program = write_decoding(config_, compute_, count, capacity_);
  add_caches(program.program);
  return *steps_.emplace(count, std::make_unique<Step>(std::move(program), given_, runtime_))
              .first->second;
}

}  // namespace tessera
