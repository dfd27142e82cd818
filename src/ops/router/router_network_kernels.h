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

/// The gradients of depth averaging: the sums over rows of `of_result` for the bias, of it times
/// previous for the scale, and it times scale for previous.
template <typename T>
struct DepthAverageGradient {
  int64_t tokens;
  int64_t width;
  const T* of_result;  // [tokens, width]
  const T* scale;      // [width], or null, as the next
  const T* previous;   // [tokens, width]
  T* of_bias;          // [width]
  T* of_scale;         // [width]
  T* of_previous;      // [tokens, width]
};

template <typename T>
struct BiasedGelu {
  int64_t tokens;
  int64_t width;
  const T* x;     // [tokens, width]
  const T* bias;  // [width]
  T* result;      // [tokens, width]
};

/// of_x = of_result · gelu'(x + bias), and of_bias the sums of its rows.
template <typename T>
struct BiasedGeluGradient {
  int64_t tokens;
  int64_t width;
  const T* x;
  const T* bias;
  const T* of_result;
  T* of_x;
  T* of_bias;
};

/// The kernels of devices. They compute in f32 and put their work into the stream.
template <typename Vendor>
void depth_average_device(const DepthAverage<float>& average, Stream& stream);
template <typename Vendor>
void depth_average_gradient_device(const DepthAverageGradient<float>& average, Stream& stream);
template <typename Vendor>
void biased_gelu_device(const BiasedGelu<float>& gelu, Stream& stream);
template <typename Vendor>
void biased_gelu_gradient_device(const BiasedGeluGradient<float>& gelu, Stream& stream);

}  // namespace tessera
