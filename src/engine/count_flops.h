#pragma once

#include "program/program.h"

namespace tessera {

/// The floating-point operations of the matrix products in one run of a program, by their purpose.
struct FlopCount {
  double forward = 0;   ///< required by the model
  double backward = 0;  ///< required by the model
  double repeated = 0;  ///< repeated to save memory, or not of the model (see Cost)

  /// Returns the FLOPs that the model requires, of which MFU is computed.
  double useful() const { return forward + backward; }

  FlopCount& operator+=(const FlopCount& other) {
    forward += other.forward;
    backward += other.backward;
    repeated += other.repeated;
    return *this;
  }
};

/// Returns the FLOPs of one run of all nodes. Nodes of an update count with repeated_flops alone.
FlopCount count_flops(const Program& program);

}  // namespace tessera
