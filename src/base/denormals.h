#pragma once

namespace tessera {

/// Makes this thread, and all that it starts from now on, take denormal numbers (below 1e-38 in
/// f32) for zero. Arithmetic on them takes longer, on some processors by far, and they occur where
/// gradients vanish: in AdamW's second moments and in the tails of a softmax.
void flush_denormals();

}  // namespace tessera
