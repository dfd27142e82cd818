#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"

namespace tessera {

/// Throws Error on every rank of the group if any rank has an error, with the first such rank and
/// up to 1023 bytes of its text. All ranks of the group call it.
void throw_on_all(Communicator& group, const std::optional<std::string>& own_error);

}  // namespace tessera
