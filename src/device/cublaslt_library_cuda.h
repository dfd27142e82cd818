#pragma once

#include <cstddef>
#include <string>

#include <cublasLt.h>

#include "device/shared_library.h"

namespace tessera {

/// NVIDIA's library of matrix products, loaded when a device first needs it.
class CublasLt {
 public:
  /// Throws Error if the system has no cuBLASLt of the major version that we were built for.
  CublasLt();

  /// A function of the library by its type and name.
  template <typename Function>
  Function* function(const char* name) const {
    return library_.function<Function>(name);
  }
  /// Throws Error, which begins with `what` and has the library's words, unless the call succeeded.
  void check(cublasStatus_t status, const std::string& what) const;
  /// The name of its file.
  const std::string& file() const { return library_.name(); }
  /// As the library writes it: 130100 is 13.1.0.
  size_t number() const;
  /// "cuBLASLt 130100".
  std::string version() const;

 private:
  SharedLibrary library_;
};

}  // namespace tessera
