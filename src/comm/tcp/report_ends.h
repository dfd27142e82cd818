#pragma once

#include <map>
#include <string>

#include "comm/processes.h"

namespace tessera {

/// Who reports an error, where `ends` has the errors by which ranks have ended, of `ranks` in all;
/// the text is empty for those that did their work. Is asked for a rank that has ended.
///
/// One error of all is the first rank's to report. The error "rank N failed: ..." that others hear
/// of is left to rank N, if it has ended with it. An error of several is the first one's of them.
Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks);

}  // namespace tessera
