#pragma once

#include "comm/call_list.h"
#include "comm/communicator.h"

namespace tessera {

/// Compares the lists of the calls that the ranks of a group will make in it. All ranks of the
/// group call this, before these calls. From then on the communicator takes the listed calls alone,
/// and the ranks need not compare each of them (Communicator::expect_calls()).
///
/// All ranks must list the same collectives in the same order. The two ranks of each message must
/// list it alike. If lists differ, all ranks throw Error that names the first call that differs, on
/// both ranks.
void agree_on_calls(Communicator& group, const CallList& list);

}  // namespace tessera
