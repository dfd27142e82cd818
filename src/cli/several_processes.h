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

/// Runs a command's work; if `processes` is not null, as one of them: then waits for all of them to
/// end. If all ranks have the same error, the first rank prints it. Otherwise each rank in which an
/// error arose prints its error, with the rank and its machine. If other ranks do not end in time,
/// ends all processes with status 1. Throws CommandStatus if the work threw CommandStatus or an
/// error.
void run_as_one_process(Processes* processes, const std::function<void()>& work);

/// Throws Error if `--ranks` asks one of several processes for several ranks.
void refuse_ranks_beside(const Processes* processes, int ranks);

/// Throws Error if a launcher started this process as one of several, and the command on the
/// command line does not run as several processes: each would do all of the work and write the same
/// files.
void refuse_several_processes(const CLI::App& app);

}  // namespace tessera
