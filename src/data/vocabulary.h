#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizer.h"

namespace tessera {

/// Throws Error when one of `tokens` is not in [smallest_id, vocabulary_size), the ids that a model
/// takes. The error names the first such token and, if `tokenizer` is given, its text. A tokenizer
/// may have more tokens than its model, and the kernels do not check the ids they are given.
/// `smallest_id` is -1 for targets, where -1 means no target.
void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer = nullptr, int32_t smallest_id = 0);

}  // namespace tessera
