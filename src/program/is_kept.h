#pragma once

#include "program/program.h"

namespace tessera {

/// Returns whether a value is kept between actions: a weight, a main gradient or a state. All
/// programs share the kept values of the same kind and name.
inline bool is_kept(const ValueInfo& info) {
  return info.kind != ValueKind::input && info.kind != ValueKind::computed;
}

}  // namespace tessera
