#pragma once

#include <functional>

#include "base/error.h"
#include "comm/processes.h"

namespace tessera {

/// Runs a command's work in one of several processes, so that an error is reported once and all of
/// them end: by the first rank if it is the same on all, and otherwise by those ranks that it comes
/// from, with the rank and its machine. Throws CommandStatus if the work did not succeed, or threw
/// it.
void run_as_one_of(Processes& processes, const std::function<void()>& work);

/// What is to be said of `--ranks` given to one of several processes.
Error ranks_beside_processes(int ranks, const Processes& processes);

}  // namespace tessera
