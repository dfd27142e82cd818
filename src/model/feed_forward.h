#pragma once

#include <string_view>

#include "model/model_writer.h"

namespace tessera {

/// A gated feed-forward layer, its parameters below `name`: down(activation(gate(x)) · up(x)), with
/// `inner` channels between; x and the result are [tokens, hidden].
Value feed_forward(ModelWriter& writer, std::string_view name, int64_t inner, Value x);

}  // namespace tessera
