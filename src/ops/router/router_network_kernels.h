#pragma once

#include <cstdint>

namespace tessera {

class Stream;

/// result = x + bias + scale ⊙ previous; without previous, x + bias.
template <typename T>
struct DepthAverage {
  int64_t tokens;
  int64_t width;
  const T* x;         // [tokens, width]
  const T* bias;      // [width]
  const T* scale;     // [width], or null
  const T* previous;  // [tokens, width], or null
  T* result;          // [tokens, width]
};

/// The gradients of depth averaging. Summed over rows, bias_gradient = Σ result_gradient and
/// scale_gradient = Σ result_gradient ⊙ previous. previous_gradient = result_gradient ⊙ scale.
template <typename T>
struct DepthAverageGradient {
  int64_t tokens;
  int64_t width;
  const T* result_gradient;  // [tokens, width]
  const T* scale;            // [width], or null together with previous
  const T* previous;         // [tokens, width]
  T* bias_gradient;          // [width]
  T* scale_gradient;         // [width]
  T* previous_gradient;      // [tokens, width]
};

/// result = gelu(x + bias).
template <typename T>
struct BiasedGelu {
  int64_t tokens;
  int64_t width;
  const T* x;     // [tokens, width]
  const T* bias;  // [width]
  T* result;      // [tokens, width]
};

/// x_gradient = result_gradient · gelu'(x + bias), and bias_gradient = Σ x_gradient over rows.
template <typename T>
struct BiasedGeluGradient {
  int64_t tokens;
  int64_t width;
  const T* x;                // [tokens, width]
  const T* bias;             // [width]
  const T* result_gradient;  // [tokens, width]
  T* x_gradient;             // [tokens, width]
  T* bias_gradient;          // [width]
};

// Device kernels. They compute in f32 and put their work into the stream.
template <typename Vendor>
void depth_average_device(const DepthAverage<float>& average, Stream& stream);
template <typename Vendor>
void depth_average_gradient_device(const DepthAverageGradient<float>& average, Stream& stream);
template <typename Vendor>
void biased_gelu_device(const BiasedGelu<float>& gelu, Stream& stream);
template <typename Vendor>
void biased_gelu_gradient_device(const BiasedGeluGradient<float>& gelu, Stream& stream);

}  // namespace tessera
