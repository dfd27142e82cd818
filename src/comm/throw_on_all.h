#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"

namespace tessera {

/// Throws Error on every rank of the group if any rank has an error; an empty text counts as none.
/// The Error names the first such rank, and has up to 1023 bytes of its text. All ranks call this.
void throw_on_all(Communicator& group, const std::optional<std::string>& own_error);

}  // namespace tessera
