#pragma once

#include <map>
#include <string>

#include "comm/processes.h"

namespace tessera {

/// Returns what a rank that has ended is to report. `ends` has the errors by which ranks have
/// ended, of `ranks` in all; the text is empty for those that did their work.
///
/// If all ranks have the same error, the first rank reports it. The error "rank N failed: ..." that
/// others hear of is left to rank N, if that has ended by it. If several ranks have the same error,
/// the first of them reports it.
Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks);

}  // namespace tessera
