#pragma once

#include "plan/step_account.h"

namespace tessera {

/// A timer that measures on this machine (see time_gemm()) for about 40 ms a product. Throws Error
/// when the trace comes from another processor, or from more threads than there are here; the timer
/// when the operands of a product exceed half of the memory, or one run would take longer than ten
/// seconds.
ProductTimer measuring_timer(const TraceOrigin& origin);

}  // namespace tessera
