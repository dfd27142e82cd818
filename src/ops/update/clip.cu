#include "device/kernel.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// Computes the norm and the factor (see Clip::run()) in one thread.
__global__ void clip_norm(ClipInputs inputs, double* norm, double* scale) {
  if (threadIdx.x != 0) return;
  const double gradient_norm = sqrt(*inputs.squares), limit = *inputs.limit;
  bool finite = std::isfinite(gradient_norm);
  for (int i = 0; i < inputs.count; ++i) finite = finite && std::isfinite(*inputs.losses[i]);
  *norm = gradient_norm;
  const double factor = limit > 0 && gradient_norm > limit ? limit / gradient_norm : 1.0;
  *scale = finite ? factor : static_cast<double>(NAN);
}

}  // namespace

template <typename Vendor>
void clip_device(const ClipInputs& inputs, double* norm, double* scale, Stream& stream) {
  launch(clip_norm, {.threads = kLanes}, stream, inputs, norm, scale);
}

template void clip_device<ThisVendor>(const ClipInputs&, double*, double*, Stream&);

}  // namespace tessera
