#include "device/cudnn_library_cuda.h"

#include <array>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 1> kNames{"libcudnn.so.9"};
/// Older versions had errors in bf16 attention (NVIDIA's own frontend refuses 9.10.0 and 9.10.1).
constexpr size_t kOldestVersion = 91002;

}  // namespace

CudnnLibrary::CudnnLibrary()
    : library(kNames, "attention on the device cuda"),
      get_version(library.function<decltype(cudnnGetVersion)>("cudnnGetVersion")),
      get_error_string(library.function<decltype(cudnnGetErrorString)>("cudnnGetErrorString")),
      get_last_error_string(
          library.function<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString")),
      create(library.function<decltype(cudnnCreate)>("cudnnCreate")),
      destroy(library.function<decltype(cudnnDestroy)>("cudnnDestroy")),
      set_stream(library.function<decltype(cudnnSetStream)>("cudnnSetStream")),
      create_descriptor(
          library.function<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor")),
      destroy_descriptor(library.function<decltype(cudnnBackendDestroyDescriptor)>(
          "cudnnBackendDestroyDescriptor")),
      set_attribute(
          library.function<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute")),
      get_attribute(
          library.function<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute")),
      finalize(library.function<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize")),
      execute(library.function<decltype(cudnnBackendExecute)>("cudnnBackendExecute")),
      version(get_version()) {
  if (version < kOldestVersion) {
    throw Error("{} is cuDNN {}; attention needs 9.10.2 or a newer 9", library.name(),
                version_text());
  }
}

std::string CudnnLibrary::version_text() const {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string CudnnLibrary::last_failure(cudnnStatus_t status) const {
  std::array<char, 1024> message{};
  get_last_error_string(message.data(), message.size());
  return fmt::format("{} {}", get_error_string(status), message.data());
}

void CudnnLibrary::check(cudnnStatus_t status, const std::string& what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error("cuDNN {} cannot {}: {}", version_text(), what, last_failure(status));
}

}  // namespace tessera
