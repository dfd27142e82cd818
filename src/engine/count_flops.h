#pragma once

#include "program/program.h"

namespace tessera {

/// Floating-point operations of the matrix products of one run of a program.
struct FlopCount {
  double forward = 0;   ///< that the model demands
  double backward = 0;  ///< that the model demands
  double repeated = 0;  ///< done again to save memory

  /// What a step's FLOPs and MFU count.
  double useful() const { return forward + backward; }
};

FlopCount count_flops(const Program& program);

}  // namespace tessera
