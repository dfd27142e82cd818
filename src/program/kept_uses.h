#pragma once

#include <set>
#include <string>
#include <utility>

#include "program/program.h"

namespace tessera {

/// The kind and the name of a value that is kept between actions, which all programs share.
using KeptName = std::pair<ValueKind, std::string>;

/// The kept values that a node uses.
struct KeptUses {
  std::set<KeptName> used;     ///< read or written
  std::set<KeptName> changed;  ///< written

  /// Returns whether one of the two nodes changes what the other one uses, so that they must keep
  /// their order.
  bool conflict_with(const KeptUses& other) const;
};

/// Returns the kept values that a node of a program uses.
KeptUses kept_uses(const Program& program, const Node& node);

}  // namespace tessera
