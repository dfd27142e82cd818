#include "layer_inputs.h"

#include "base/random.h"

namespace tessera {

Value given(Builder& builder, const char* name, const Shape& shape, DType dtype) {
  return builder.parameter(name, {shape, dtype, {}});
}

Value integers(BlockProgram& block, Builder& builder, const char* name, const Shape& shape,
               std::vector<int32_t> values) {
  const Value value = builder.state(name, {shape, DType::i32, {}});
  block.integers[value.id] = std::move(values);
  return value;
}

std::vector<int32_t> chosen_experts() {
  std::vector<int32_t> chosen;
  for (int64_t token = 0; token < kTokens; ++token) {
    const Permutation experts(kExperts, static_cast<uint64_t>(token));
    for (uint64_t choice = 0; choice < kChosen; ++choice) {
      chosen.push_back(static_cast<int32_t>(experts(choice)));
    }
  }
  return chosen;
}

std::vector<int32_t> random_tokens(int64_t count) {
  const CounterRandom random(1, "tokens");
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.bits(static_cast<uint64_t>(i)) % kVocabulary));
  }
  return tokens;
}

}  // namespace tessera
