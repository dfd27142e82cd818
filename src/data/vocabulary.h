#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizer.h"

namespace tessera {

/// Throws Error when one of `tokens` has no row in the embedding of a model with `vocabulary_size`
/// tokens, naming it and, where `tokenizer` is given, its text. A tokenizer may have more tokens
/// than its model; the kernels trust that none of them comes to them. `least` is -1 for targets,
/// where that is none.
void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer = nullptr, int32_t least = 0);

}  // namespace tessera
