#pragma once

#include <cstddef>
#include <string>

#include <cublasLt.h>

#include "device/shared_library.h"

namespace tessera {

/// NVIDIA's library of matrix products, loaded when a device first needs it.
class CublasLt {
 public:
  /// Throws Error if the system has no cuBLASLt of the major version of this build.
  CublasLt();

  /// Returns a function of the library by its type and name.
  template <typename Function>
  Function* function(const char* name) const {
    return library_.function<Function>(name);
  }
  /// Throws Error, with `what` and then the library's message, unless `status` is success.
  void check(cublasStatus_t status, const std::string& what) const;
  /// Returns the name of the library's file.
  const std::string& file() const { return library_.name(); }
  /// Returns the version as the library writes it: 130100 is 13.1.0.
  size_t version_number() const;
  /// Returns the version for messages: "cuBLASLt 130100".
  std::string version_text() const;

 private:
  SharedLibrary library_;
};

}  // namespace tessera
