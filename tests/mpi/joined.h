#pragma once

#include <memory>
#include <string>

#include "comm/processes.h"
#include "comm/ranks_and_values.h"

namespace tessera {

/// The processes of this test program, which main() joins.
std::unique_ptr<Processes>& joined_slot();
inline Processes& joined() { return *joined_slot(); }

/// A communicator of all processes on a lane that no other test uses.
inline Communicator new_group() {
  static int number = 0;
  return joined().group(first_ranks(joined().ranks()), "test " + std::to_string(number++));
}

}  // namespace tessera
