#pragma once

#include <array>
#include <cstdint>

namespace tessera {

class Stream;

/// Parts that are added up into one value, one part after the other:
///
///   whole[first + e] = whole[first + e] + part[e]
///
/// Each sum is rounded to T, as on the processor.
template <typename T>
struct PartSums {
  static constexpr int kMostParts = 64;  // their list is a kernel's argument, which must be small
  struct Part {
    const T* elements;
    int64_t first, end;  // its elements of the whole
  };
  std::array<Part, kMostParts> parts;
  int count;
  bool onto_zeros;   // true if the whole has undefined contents; it then begins as zeros
  T* whole;          // aligned to 64 bytes
  int64_t elements;  // of the whole
};

/// Launches the sums on the stream, for T = float and BFloat16. All pointers are the device's.
template <typename Vendor, typename T>
void sum_parts_device(const PartSums<T>& sums, Stream& stream);

}  // namespace tessera
