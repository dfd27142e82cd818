#pragma once

namespace tessera {

/// Makes this thread, and every thread that it starts from now on, treat denormal numbers (below
/// 1e-38 in f32) as zero. Arithmetic on them is slower, on some processors much slower. They occur
/// where gradients vanish: in AdamW's second moments and in the tails of a softmax.
void flush_denormals();

}  // namespace tessera
