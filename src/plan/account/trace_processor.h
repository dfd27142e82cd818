#pragma once

#include "engine/step_trace.h"
#include "hardware/processor.h"

namespace tessera {

/// Returns the processor that a trace comes from, with the threads of its run. Its caches are not
/// recorded.
inline Processor processor_of(const TraceOrigin& origin) {
  return {.name = origin.processor, .features = origin.features, .threads = origin.threads};
}

}  // namespace tessera
