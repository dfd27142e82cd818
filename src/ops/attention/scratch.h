#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/alignment.h"

namespace tessera {

/// A workspace that is divided into arrays, each aligned (see kAlignment). With a null base it only
/// counts bytes, so the code that divides a workspace also computes its size.
class Scratch {
 public:
  explicit Scratch(std::byte* base = nullptr) : base_(base) {}

  /// Returns a new array of `count` elements, or null if the base is null.
  template <typename T>
  T* array(int64_t count) {
    std::byte* const begin = base_ ? base_ + bytes_ : nullptr;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), kAlignment);
    return reinterpret_cast<T*>(begin);
  }
  int64_t bytes() const { return bytes_; }  ///< of all arrays so far

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// Returns the bytes of the arrays that the constructor Layout(scratch, arguments...) makes.
template <typename Layout, typename... Arguments>
int64_t layout_bytes(const Arguments&... arguments) {
  Scratch counter;
  Layout(counter, arguments...);
  return counter.bytes();
}

}  // namespace tessera
