#include "device/accelerator.h"

#include "base/error.h"
#include "device/emulated_accelerator.h"
#include "device/open_gpu.h"

namespace tessera {
namespace {

std::unique_ptr<Accelerator> open_if_built(Device device, [[maybe_unused]] const LocalRank& rank) {
  switch (device) {
    case Device::emulated:
      return open_emulated();
    case Device::cuda:
#if defined(TESSERA_CUDA)
      return open_cuda(rank);
#else
      throw Error(
          "this build of tessera has no kernels for the device \"cuda\": configure it with "
          "-DTESSERA_CUDA=ON, which needs NVIDIA's CUDA 13 with nvcc (`scripts/setup cuda`)");
#endif
    case Device::hip:
#if defined(TESSERA_HIP)
      return open_hip(rank);
#else
      throw Error(
          "this build of tessera has no kernels for the device \"hip\": configure it with the "
          "preset \"hip\", which needs clang and AMD's device libraries (`scripts/setup hip`)");
#endif
    case Device::cpu:
      break;
  }
  throw InternalError("the processor is no accelerator");
}

}  // namespace

std::unique_ptr<Accelerator> open_accelerator(Device device, std::string_view setting,
                                              const LocalRank& rank) {
  try {
    return open_if_built(device, rank);
  } catch (const Error& error) {
    throw Error("{}; or choose another {}", error.what(), setting);
  }
}

}  // namespace tessera
