#pragma once

#include <map>
#include <string>

#include "comm/processes.h"

namespace tessera {

/// Returns what a rank that has ended is to report. `ends` has the error of each rank that has
/// ended; the text is empty if the rank did its work. `ranks` is the number of all ranks.
///
/// If all ranks have the same error, the first rank reports it. An error "rank N failed: ..." is
/// one that other ranks were told of; rank N reports it, if N has ended by it. If several ranks
/// have the same error, the first of them reports it.
Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks);

}  // namespace tessera
