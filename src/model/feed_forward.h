#pragma once

#include <string_view>

#include "model/model_writer.h"

namespace tessera {

/// Writes a gated feed-forward layer: down(activation(gate(x)) · up(x)), with `inner` channels in
/// between. Its parameters are named below `name`. x and the result are [tokens, hidden], and the
/// tensor axis splits their positions. Inside, it splits the inner channels.
Value feed_forward(ModelWriter& writer, std::string_view name, int64_t inner, Value x);

}  // namespace tessera
