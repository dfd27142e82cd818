#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace tessera {

/// A vendor's library that a device uses, as found on this machine.
struct LibraryFacts {
  std::string purpose;  ///< "matrix products"
  std::string file;     ///< the name under which it was loaded: "libcublasLt.so.13"
  int64_t version = 0;  ///< as the library writes it: 130101
};

/// The libraries of a device, and their description of it.
struct DeviceLibraries {
  std::vector<LibraryFacts> libraries;
  /// cuDNN's own description of the GPU, a JSON object; empty for other devices.
  std::string description;
};

/// Loads the libraries that the operations use on an open device. The emulated device uses none.
/// Throws Error, which names the library, if one is missing, has another major version, is too old
/// or cannot describe the device.
DeviceLibraries device_libraries(Device device);

/// Returns device_libraries() of the device cuda. Exists in builds with TESSERA_CUDA only.
DeviceLibraries cuda_libraries();

}  // namespace tessera
