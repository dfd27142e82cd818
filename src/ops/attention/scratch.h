#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/alignment.h"

namespace tessera {

/// A workspace that is divided into arrays, each aligned (see kAlignment). With a null base it only
/// counts bytes, so the code that lays out a workspace also gives its size.
class Scratch {
 public:
  explicit Scratch(std::byte* base = nullptr) : base_(base) {}

  /// Returns the next `count` elements, or null if the base is null.
  template <typename T>
  T* take(int64_t count) {
    std::byte* const here = base_ ? base_ + bytes_ : nullptr;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), kAlignment);
    return reinterpret_cast<T*>(here);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// Returns the bytes of a workspace that Layout(scratch, arguments...) divides.
template <typename Layout, typename... Arguments>
int64_t layout_bytes(const Arguments&... arguments) {
  Scratch size;
  Layout(size, arguments...);
  return size.bytes();
}

}  // namespace tessera
