#pragma once

#include <array>
#include <cstdint>

namespace tessera {

class Stream;

/// Parts that are added up into one value: whole[first + e] = whole[first + e] + part[e] for the
/// elements of one part after the other, each sum rounded to T.
template <typename T>
struct PartSums {
  static constexpr int kMost = 64;
  struct Part {
    const T* elements;
    int64_t first, end;  // where it lies in the whole
  };
  std::array<Part, kMost> parts;
  int count;
  bool onto_zeros;   // the whole has undefined contents, and begins as zeros
  T* whole;          // it begins on 64 bytes
  int64_t elements;  // of the whole
};

/// The kernel of devices, for T = float and BFloat16. It puts its work into the stream. All
/// pointers are the device's.
template <typename Vendor, typename T>
void sum_parts_device(const PartSums<T>& sums, Stream& stream);

}  // namespace tessera
