#pragma once

#include <array>
#include <cstdint>

namespace tessera {

class Stream;

/// The arguments of a kernel that adds up parts into one value, one part after the other:
///
///   whole[first + e] = whole[first + e] + part[e]
///
/// Each sum is rounded to T, as on the processor.
template <typename T>
struct PartSums {
  static constexpr int kMaxParts = 64;  // the list is a kernel's argument, whose size is limited
  struct Part {
    const T* elements;
    int64_t first, end;  // the part is added to elements [first, end) of the whole
  };
  std::array<Part, kMaxParts> parts;
  int part_count;
  bool onto_zeros;  // true if the whole has undefined contents; the sums then begin with zero
  T* whole;         // aligned to 64 bytes
  int64_t whole_elements;
};

/// Launches the sums on the stream, for T = float and BFloat16. All pointers are the device's.
template <typename Vendor, typename T>
void sum_parts_device(const PartSums<T>& sums, Stream& stream);

}  // namespace tessera
