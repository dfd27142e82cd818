#include <array>
#include <memory>
#include <type_traits>

#include <cublasLt.h>
#include <cudnn.h>

#include "base/error.h"
#include "device/device_libraries.h"
#include "device/shared_library.h"

namespace tessera {
namespace {

/// The functions of cuDNN that describe a device.
class DeviceDescription {
 public:
  explicit DeviceDescription(const SharedLibrary& cudnn)
      : create_(
            cudnn.function<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor")),
        destroy_(cudnn.function<decltype(cudnnBackendDestroyDescriptor)>(
            "cudnnBackendDestroyDescriptor")),
        set_(cudnn.function<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute")),
        get_(cudnn.function<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute")),
        finalize_(cudnn.function<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize")),
        error_(cudnn.function<decltype(cudnnGetErrorString)>("cudnnGetErrorString")) {}

  /// Of the process's first device, as JSON.
  std::string text() const {
    cudnnBackendDescriptor_t made = nullptr;
    check(create_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made));
    const std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, Destroy> owned(made,
                                                                                          destroy_);
    const int32_t first = 0;
    check(set_(made, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &first));
    check(finalize_(made));
    int64_t bytes = 0;
    constexpr auto kJson = CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
    check(get_(made, kJson, CUDNN_TYPE_CHAR, 0, &bytes, nullptr));
    std::string json(static_cast<size_t>(bytes), '\0');
    check(get_(made, kJson, CUDNN_TYPE_CHAR, bytes, &bytes, json.data()));
    return json.substr(0, json.find('\0'));
  }

 private:
  using Destroy = decltype(cudnnBackendDestroyDescriptor)*;

  void check(cudnnStatus_t status) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw Error("cuDNN cannot describe the GPU: {}", error_(status));
  }

  decltype(cudnnBackendCreateDescriptor)* create_;
  Destroy destroy_;
  decltype(cudnnBackendSetAttribute)* set_;
  decltype(cudnnBackendGetAttribute)* get_;
  decltype(cudnnBackendFinalize)* finalize_;
  decltype(cudnnGetErrorString)* error_;
};

}  // namespace

DeviceLibraries cuda_libraries() {
  constexpr std::array<const char*, 2> kProducts{"libcublasLt.so.13", "libcublasLt.so"};
  constexpr std::array<const char*, 2> kAttention{"libcudnn.so.9", "libcudnn.so"};
  const SharedLibrary products(kProducts, "matrix products on the device \"cuda\"");
  const SharedLibrary attention(kAttention, "attention on the device \"cuda\"");
  const auto version = [](size_t number) { return static_cast<int64_t>(number); };
  return {
      .libraries = {{"matrix products", products.name(),
                     version(
                         products.function<decltype(cublasLtGetVersion)>("cublasLtGetVersion")())},
                    {"attention", attention.name(),
                     version(attention.function<decltype(cudnnGetVersion)>("cudnnGetVersion")())}},
      .description = DeviceDescription(attention).text()};
}

}  // namespace tessera
