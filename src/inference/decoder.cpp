#include "inference/decoder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/vocabulary.h"
#include "engine/executor.h"

namespace tessera {

struct Decoder::Step {
  Step(const Decoder& decoder, int64_t count)
      : decoding(write_decoding(decoder.config_, decoder.compute_, count, decoder.capacity_)),
        executor(decoding.program, decoder.runtime_),
        frame(decoding.program),
        tokens(decoder.runtime_.pool(), {count}, DType::i32),
        positions(decoder.runtime_.pool(), {count}, DType::i32),
        first(decoder.runtime_.pool(), {1}, DType::i32) {
    for (size_t i = 0; i < decoder.weights_.size(); ++i) {
      frame.bind(decoding.parameters.values()[i], decoder.weights_[i]);
    }
    frame.bind(decoding.tokens, tokens);
    frame.bind(decoding.positions, positions);
    frame.bind(decoding.first, first);
  }
  DecodingProgram decoding;
  Executor executor;
  Frame frame;
  Tensor tokens, positions, first;
};

Decoder::Decoder(const ModelConfig& config, DType compute, std::span<const Tensor> weights,
                 int64_t capacity, Runtime& runtime)
    : config_(config),
      compute_(compute),
      weights_(weights),
      capacity_(capacity),
      runtime_(runtime) {}

Decoder::~Decoder() = default;

Tensor Decoder::feed(std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  TESSERA_CHECK(done_ + count <= capacity_, "{} tokens after {} in a cache of {}", count, done_,
                capacity_);
  require_in_vocabulary(tokens, config_.vocabulary_size);
  Step& step = prepare(count);
  std::ranges::copy(tokens, step.tokens.data<int32_t>());
  std::iota(step.positions.data<int32_t>(), step.positions.data<int32_t>() + count,
            static_cast<int32_t>(done_));
  *step.first.data<int32_t>() = static_cast<int32_t>(done_);
  step.executor.run(step.frame);
  done_ += count;
  return step.frame[step.decoding.logits];
}

Decoder::Step& Decoder::prepare(int64_t count) {
  if (const auto found = steps_.find(count); found != steps_.end()) return *found->second;
  auto step = std::make_unique<Step>(*this, count);
  const auto& values = step->decoding.program.values();
  for (size_t id = 0; id < values.size(); ++id) {
    if (values[id].kind != ValueKind::state) continue;
    Tensor& cache = caches_[values[id].name];
    if (!cache.defined()) {
      cache = Tensor(runtime_.pool(), values[id].spec.shape, values[id].spec.dtype);
      cache.fill_zero();
    }
    step->frame.bind(Value{static_cast<int>(id)}, cache);
  }
  return *steps_.emplace(count, std::move(step)).first->second;
}

}  // namespace tessera
