#pragma once

#include "hardware/processor.h"
#include "program/target.h"

namespace tessera {

/// The target that programs on this processor are planned for, as host_target() gives it there. Its
/// instructions are those that oneDNN takes of the processor's features.
Target target_of(const Processor& processor);

}  // namespace tessera
