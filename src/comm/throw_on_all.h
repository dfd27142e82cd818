#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"

namespace tessera {

/// Throws Error on every rank of the group if any rank has an error. The text names the first such
/// rank, and has up to 1023 bytes of its error. All ranks of the group call it.
void throw_on_all(Communicator& group, const std::optional<std::string>& own_error);

}  // namespace tessera
