#pragma once

#include <string>

#include <cudnn.h>

#include "device/shared_library.h"

namespace tessera {

/// The functions of cuDNN that attention calls. The constructor loads them.
struct CudnnLibrary {
  /// Throws Error if cuDNN is not found, or is older than attention needs.
  CudnnLibrary();

  SharedLibrary library;
  decltype(cudnnGetVersion)* get_version;
  decltype(cudnnGetErrorString)* get_error_string;
  decltype(cudnnGetLastErrorString)* get_last_error_string;
  decltype(cudnnCreate)* create;
  decltype(cudnnDestroy)* destroy;
  decltype(cudnnSetStream)* set_stream;
  decltype(cudnnBackendCreateDescriptor)* create_descriptor;
  decltype(cudnnBackendDestroyDescriptor)* destroy_descriptor;
  decltype(cudnnBackendSetAttribute)* set_attribute;
  decltype(cudnnBackendGetAttribute)* get_attribute;
  decltype(cudnnBackendFinalize)* finalize;
  decltype(cudnnBackendExecute)* execute;
  size_t version;  ///< as cudnnGetVersion() returns it: 91900 is 9.19.0

  /// Throws Error "cuDNN cannot <what>", with cuDNN's message, unless `status` is success.
  void check(cudnnStatus_t status, const std::string& what) const;
  std::string version_text() const;
  /// Returns cuDNN's message about the last failure.
  std::string last_failure(cudnnStatus_t status) const;
};

}  // namespace tessera
