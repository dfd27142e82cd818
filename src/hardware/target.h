#pragma once

#include "hardware/processor.h"
#include "program/target.h"

namespace tessera {

/// Returns the target that programs on this processor are planned for, as host_target() returns it
/// there. Its instructions are those of the processor's features that oneDNN uses.
Target target_of(const Processor& processor);

}  // namespace tessera
