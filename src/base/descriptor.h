#pragma once

#include <utility>

#include <unistd.h>

namespace tessera {

/// A file descriptor that closes itself, if it is open.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() {
    if (is_open()) ::close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  bool is_open() const { return value_ >= 0; }
  int get() const { return value_; }

 private:
  int value_;
};

}  // namespace tessera
