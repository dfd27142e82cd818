#pragma once

#include <cstdint>
#include <optional>

#include "program/builder.h"

namespace tessera {

/// Llama 3.1's stretching of low frequencies for longer contexts. A frequency whose wavelength is
/// below original_context / high_frequency_factor is kept. A frequency whose wavelength is above
/// original_context / low_frequency_factor is divided by `factor`. Between these two wavelengths
/// the result is interpolated linearly in original_context / wavelength.
struct RotaryScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_context = 8192;  ///< in tokens
};

/// The channels of a head that turn with the position of a token, and their speed.
struct RotaryOptions {
  int64_t channels = 0;  ///< rotated channels of each head: even, at most the head's size
  double theta = 1e4;    ///< frequency i is theta^(-2i / channels) radians per position
  std::optional<RotaryScaling> scaling = {};
};

/// Returns the frequencies of the channels/2 rotated pairs, in radians per position.
std::vector<double> rotary_frequencies(const RotaryOptions& options);

/// Computes the table of rotations [tokens, channels] from positions, i32 [tokens]. It holds the
/// cosines (channels/2) and then the sines (channels/2) of each token's angles. The processor
/// computes them in f64 and rounds to `dtype` (f32 or f64); a device needs no f64 (see
/// RotarySteps). One table serves all layers. Throws InternalError if the options are out of range.
Value rotary_table(Builder& builder, Value positions, const RotaryOptions& options, DType dtype);

/// Applies rotary position embedding to queries or keys. x is [tokens, heads * head_dim]. The table
/// is [tokens, channels] in x's accumulation type. Within the first `channels` channels of each
/// head, channel i and channel i + channels/2 are rotated together (Hugging Face's "rotate half"
/// order). The other channels pass unchanged. The gradient is the inverse rotation. Throws
/// InternalError if the shapes do not fit.
Value rotary(Builder& builder, Value x, Value table, int64_t head_dim);

}  // namespace tessera
