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

/// The elements that a kernel computes, of those from the beginning of its arrays.
struct GatedExtent {
  int64_t elements;  ///< of the arrays; on the processor those that are computed
  /// In a device's memory: the number of rows that are computed there. Null: all elements are.
  const int32_t* rows = nullptr;
  int64_t width = 0;  ///< elements of a row
};

/// output = activation(gate) · up; output may be gate's memory.
template <typename T>
struct GatedForward {
  GatedExtent extent;
  const T* gate;
  const T* up;
  T* output;
};

/// Computes gate_gradient = output_gradient · up · slope and up_gradient = output_gradient · value,
/// where value and slope are those of the activation at gate. The results may be gate's and up's
/// memory.
template <typename T>
struct GatedBackward {
  GatedExtent extent;
  const T* gate;
  const T* up;
  const T* output_gradient;
  T* gate_gradient;
  T* up_gradient;
};

/// The fast kernels, for T = float and BFloat16.
template <typename T>
void gated_fast(const GatedForward<T>& gated, Activation kind, int threads);
template <typename T>
void gated_gradient_fast(const GatedBackward<T>& gated, Activation kind, int threads);

/// The kernels of devices, for the same types. They put their work into the stream. All arrays
/// begin on 64 bytes.
template <typename Vendor, typename T>
void gated_device(const GatedForward<T>& gated, Activation kind, Stream& stream);
template <typename Vendor, typename T>
void gated_gradient_device(const GatedBackward<T>& gated, Activation kind, Stream& stream);

}  // namespace tessera
