#pragma once

#include <array>
#include <string_view>

#include <mpi.h>

#include "base/error.h"

namespace tessera {

/// Throws Error with MPI's description if one of its calls failed.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error("{} failed: {}", call, std::string_view(text.data(), static_cast<size_t>(length)));
}

}  // namespace tessera
