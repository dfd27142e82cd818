#pragma once

#include <cstdint>

#include "ops/activation/activation_kind.h"

namespace tessera {

class Stream;

/// An activation and its derivative at one point.
template <typename Wide>
struct ActivationPoint {
  Wide value;
  Wide slope;
};

/// The number of elements that a kernel computes, from the beginning of its arrays on. On a device
/// only the device's memory may hold this number.
struct GatedExtent {
  int64_t elements;  ///< the number to compute, or if row_count is given, its upper bound
  const int32_t* row_count = nullptr;  ///< the rows to compute, in the device's memory; or null
  int64_t width = 0;                   ///< elements of a row
};

/// The arguments of output = activation(gate) · up. output may be in gate's memory.
template <typename T>
struct GatedForward {
  using Element = T;
  GatedExtent extent;
  const T* gate;
  const T* up;
  T* output;
};

/// The arguments of gate_gradient = output_gradient · up · slope and up_gradient = output_gradient
/// · value. Here value is the activation at gate, and slope its derivative there. gate_gradient may
/// be in gate's memory and up_gradient in up's, so kernels read all operands before they write.
template <typename T>
struct GatedBackward {
  using Element = T;
  GatedExtent extent;
  const T* gate;
  const T* up;
  const T* output_gradient;
  T* gate_gradient;
  T* up_gradient;
};

/// Runs the processor's fast kernels, for GatedForward and GatedBackward of float and BFloat16.
template <typename Arguments>
void gated_fast(const Arguments& arguments, Activation kind, int threads);

/// Enqueues the kernels on a device's stream, for the same types. Arrays are aligned to 64 bytes.
template <typename Vendor, typename Arguments>
void gated_device(const Arguments& arguments, Activation kind, Stream& stream);

}  // namespace tessera
