#pragma once

#include "comm/rank_control.h"
#include "program/runtime.h"

namespace tessera {

/// The means by which a rank saves and loads the run's state together with the others.
struct StateRanks {
  Runtime& runtime;
  const RankControl& control;

  /// Returns the mesh of the ranks; that of one rank if there are no others.
  Mesh mesh() const { return control.several() ? runtime.groups().mesh() : Mesh(); }
};

}  // namespace tessera
