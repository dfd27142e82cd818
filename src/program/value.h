#pragma once

#include <cstdint>

#include "comm/distribution.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

/// The shape, dtype and distribution of a value, known before it exists.
struct Spec {
  Shape shape;  ///< of the piece that this rank holds; ParameterSpec has a parameter's whole shape
  DType dtype = DType::f32;
  Distribution distribution;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
  bool operator==(const Spec&) const = default;
};

/// A handle to one value of a Program; null when default-constructed (an absent gradient).
struct Value {
  int id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Value&) const = default;
};

}  // namespace tessera
