#pragma once

#include <map>
#include <string>

#include "comm/processes.h"

namespace tessera {

/// Returns which error `rank`, one of the ranks that have ended, is to report. `ends` has the error
/// of each of these; the text is empty if the rank did its work. There are `ranks` ranks in all.
///
/// - If all ranks have ended by the same error, the first rank reports it for all.
/// - "rank N failed: ..." is the error of a rank that was told of another rank's failure. If rank N
///   has ended by that failure, N alone reports it.
/// - If several ranks have the same error, the lowest of them reports it.
Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks);

}  // namespace tessera
