#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/run_trace.h"
#include "plan/account/network_calls.h"

namespace tessera {

// The rows of a rank in the picture of a step: one for each lane that it used.

/// What a rank does in a box of its row.
enum class BoxActivity : uint8_t {
  computing,
  on_its_own,    ///< an operation of a lane that communicates, which calls nobody
  waiting,       ///< in a call, for the last rank
  transferring,  ///< in a call, after that
  calling,       ///< in a call whose last rank is not known
};

/// A part of a row.
struct TraceBox {
  std::chrono::nanoseconds start{};
  std::chrono::nanoseconds end{};
  BoxActivity activity = BoxActivity::computing;
  std::string name;   ///< the pass of computing, or the axes of a call
  std::string block;  ///< of the model, of computing; empty if it has several
  int layer = -1;
  double bytes = 0;  ///< that a call sends

  std::chrono::nanoseconds duration() const { return end - start; }
};

struct TraceRow {
  std::string name;
  std::vector<TraceBox> boxes;  ///< in the order of time
};

/// Returns the rows of a rank, whose calls are `calls`: that of the compute lane first. An
/// operation of the compute lane has a box, and a call one for its wait and one for its transfer.
/// Messages of both directions are in one row, which has the waits for them.
std::vector<TraceRow> trace_rows(const RankTrace& trace, const std::vector<NetworkCall>& calls);

/// Returns boxes that a picture can show, in the order of time. Operations that compute for the
/// same pass, block and layer become one box if less than `narrow` is between them. Then boxes
/// shorter than `narrow` become one box with those that follow them within `narrow`, until it is as
/// long. It is of the kind that takes most of its time. So nothing is left out, and there are at
/// most two boxes in each span of `narrow`.
std::vector<TraceBox> merged(const std::vector<TraceBox>& boxes, std::chrono::nanoseconds narrow);

}  // namespace tessera
