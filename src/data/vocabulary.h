#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizer.h"

namespace tessera {

/// Throws Error when one of `tokens` has no row in the embedding of a model with `vocabulary_size`
/// tokens. The error names the token and, if `tokenizer` is given, its text. A tokenizer may have
/// more tokens than its model, and the kernels do not check the ids they are given. `smallest_id`
/// is the smallest valid id; it is -1 for targets, where -1 means no target.
void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer = nullptr, int32_t smallest_id = 0);

}  // namespace tessera
