#pragma once

#include <string>

#include "comm/rank_control.h"

namespace tessera {

/// The ranks of a run that compute on the same cores as this one. Ranks that are threads of one
/// process all do. Of processes it is those of one machine, if their launcher has not bound them to
/// cores of their own.
struct SharedCores {
  int ranks = 1;
  int place = 0;  ///< of this rank among them
};

/// Finds them for a rank that is a process. All ranks call it. `host` is the machine's name.
SharedCores find_shared_cores(const std::string& host, const RankControl& control);

}  // namespace tessera
