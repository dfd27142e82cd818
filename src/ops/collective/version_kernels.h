#pragma once

#include <cstdint>

namespace tessera {

class Stream;

// Device kernels for the versions of weights and of their second copies. They put their work into
// the stream. All pointers are to device memory.

/// Adds one to a version.
template <typename Vendor>
void advance_version_device(int32_t* version, Stream& stream);

/// Fills weights with NaN, `count` elements of float or BFloat16, unless two versions are equal.
template <typename Vendor, typename T>
void spoil_stale_device(const int32_t* version, const int32_t* expected, T* weights, int64_t count,
                        Stream& stream);

}  // namespace tessera
