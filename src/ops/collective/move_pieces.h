#pragma once

#include <string>

#include "comm/flat_pieces.h"
#include "program/builder.h"

namespace tessera {

// A change of the pieces into which ranks cut flat memory. Each rank sends to each other one the
// elements that it has and the other is to have. There are no gradients. `name` names the messages.
// Both pieces are over the same axes.

/// Returns this rank's piece of `to`, given its piece of `from`.
Value move_pieces(Builder& builder, const std::string& name, Value piece, const FlatPieces& from,
                  const FlatPieces& to);

/// Does the same, and writes the result over `target`, this rank's piece of `to`.
void move_pieces_into(Builder& builder, const std::string& name, Value piece,
                      const FlatPieces& from, Value target, const FlatPieces& to);

}  // namespace tessera
