#pragma once

#include <cstdint>
#include <vector>

#include "plan/blocks/block_measurement.h"

namespace tessera {

// One layer of a small mixture of experts.
inline constexpr int64_t kTokens = 4096, kHidden = 1024, kHeads = 8, kHeadSize = 128;
inline constexpr int64_t kExperts = 64, kChosen = 8, kExpertSize = 512, kVocabulary = 32000;

/// A random tensor whose gradient is computed.
Value given(Builder& builder, const char* name, const Shape& shape, DType dtype);

/// A given i32 tensor.
Value integers(BlockProgram& block, Builder& builder, const char* name, const Shape& shape,
               std::vector<int32_t> values);

/// Distinct random experts for each of kTokens tokens, kChosen a token.
std::vector<int32_t> chosen_experts();

/// Random ids below kVocabulary.
std::vector<int32_t> random_tokens(int64_t count);

}  // namespace tessera
