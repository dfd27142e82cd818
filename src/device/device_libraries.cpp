#include "device/device_libraries.h"

namespace tessera {

DeviceLibraries device_libraries([[maybe_unused]] Device device) {
#if defined(TESSERA_CUDA)
  if (device == Device::cuda) return cuda_libraries();
#endif
  return {};
}

}  // namespace tessera
