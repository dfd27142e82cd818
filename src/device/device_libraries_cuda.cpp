#include "device/cublaslt_library_cuda.h"
#include "device/cudnn_descriptor_cuda.h"
#include "device/device_libraries.h"

namespace tessera {
namespace {

/// Returns cuDNN's description of the process's first GPU, as JSON.
std::string description(const CudnnLibrary& cudnn) {
  CudnnDescriptor device(cudnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t{0});
  device.finalize("describe the GPU");
  constexpr auto kJson = CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
  const int64_t bytes = device.get(kJson, CUDNN_TYPE_CHAR, std::span<char>());
  std::string json(static_cast<size_t>(bytes), '\0');
  device.get(kJson, CUDNN_TYPE_CHAR, std::span(json));
  return json.substr(0, json.find('\0'));
}

}  // namespace

DeviceLibraries cuda_libraries() {
  const CublasLt products;
  const CudnnLibrary attention;
  return {.libraries = {{"matrix products", products.file(),
                         static_cast<int64_t>(products.version_number())},
                        {"attention", attention.library.name(),
                         static_cast<int64_t>(attention.version)}},
          .description = description(attention)};
}

}  // namespace tessera
