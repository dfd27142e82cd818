#pragma once

#include <functional>
#include <string>

#include "comm/processes.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

// What commands do under a launcher (mpirun, srun), which starts the program as several processes.
// Each process is then a rank.

/// Returns the command on the command line, such as "bench collectives".
std::string command_name(const CLI::App& app);

/// Runs a command's work. If `processes` is null, throws what the work throws. Otherwise waits for
/// all processes to end. If all ranks have the same error, the first rank prints it; if not, each
/// rank with an error of its own prints it, with the rank and its machine. Ends all processes with
/// status 1 if others do not end in time. Throws CommandStatus if the work threw that or an error.
void run_as_one_process(Processes* processes, const std::function<void()>& work);

/// Throws Error if `processes` is not null and --ranks asks for several ranks, which are threads.
void refuse_thread_ranks(const Processes* processes, int ranks);

/// Throws Error if a launcher started this process as one of several, and the command on the
/// command line does not run as several processes: each would do all of the work and write the same
/// files.
void refuse_several_processes(const CLI::App& app);

}  // namespace tessera
