#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/words.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

class Accelerator;

/// A contiguous array: a shape, an element type and a reference to memory. Copies and views share
/// the memory. A const Tensor is a const handle, not const data. Only tensors in the processor's
/// memory can be read and written in place. upload() and readback() copy to and from tensors in an
/// accelerator's memory.
class Tensor {
 public:
  /// Makes a tensor without memory: defined() is false.
  Tensor() = default;
  /// Allocates memory on the processor, aligned to at least 64 bytes, with undefined contents.
  /// Throws Error if there is none.
  Tensor(const Shape& shape, DType dtype);
  /// Returns a tensor that refers to memory of the processor or of an accelerator. The caller owns
  /// the memory and keeps it alive.
  static Tensor wrap(void* data, const Shape& shape, DType dtype,
                     Accelerator* accelerator = nullptr);

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const;
  /// Returns the accelerator whose memory holds the tensor; null for the processor's memory.
  Accelerator* accelerator() const { return accelerator_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * dtype_size(dtype_); }

  /// Returns the elements. T must be their type, and the tensor must be on the processor.
  template <typename T>
  T* data() const {
    require_type(dtype_of<T>);
    require_host();
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> values() const {
    return {data<T>(), static_cast<size_t>(elements())};
  }
  /// Returns the bytes of a tensor on the processor.
  std::byte* raw() const {
    require_host();
    return static_cast<std::byte*>(data_);
  }
  /// Returns the address of the tensor in its device's memory. Only the device's own kernels may
  /// use it.
  void* address() const { return data_; }
  /// Returns address() as a pointer to elements, after a check of their type.
  template <typename T>
  T* pointer() const {
    require_type(dtype_of<T>);
    return static_cast<T*>(data_);
  }

  /// Returns a view of the same memory with another shape of the same number of elements.
  Tensor reshape(const Shape& shape) const;
  /// Returns a view of the rows [begin, end) of the outermost dim.
  Tensor slice(int64_t begin, int64_t end) const;
  /// Returns a view of `shape` that starts at element `offset` of this tensor.
  Tensor view(int64_t offset, const Shape& shape) const;

  void fill_zero() const;
  /// Copies the elements of a tensor of the same shape and type.
  void copy_from(const Tensor& source) const;

 private:
  void require_type(DType dtype) const {
    TESSERA_CHECK(dtype == dtype_, "a tensor of {} read as {}", dtype_name(dtype_),
                  dtype_name(dtype));
  }
  void require_host() const {
    TESSERA_CHECK(accelerator_ == nullptr, "the host reads or writes a tensor of the device {}",
                  word(device()));
  }

  std::shared_ptr<std::byte> owned_;
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
  Accelerator* accelerator_ = nullptr;
};

/// Copies bytes from the host into a tensor on any device. The sizes must be equal. Waits for all
/// work of the device.
void upload(std::span<const std::byte> from, const Tensor& to);
/// Copies the bytes of a tensor on any device to the host. The sizes must be equal. Waits for all
/// work of the device.
void readback(const Tensor& from, std::span<std::byte> to);

/// Returns the tensor itself, or a copy on the processor if it is in an accelerator's memory.
Tensor on_host(const Tensor& tensor);

/// Returns the elements of an f64 tensor on any device.
std::vector<double> read_numbers(const Tensor& from);

/// Converts between floating types element by element, rounding to nearest even; f64 goes to types
/// of 2 bytes by way of f32. Both tensors must be on the processor and have the same shape.
void convert(const Tensor& from, const Tensor& to);

/// Returns the sum of the elements of an f32 or f64 tensor, added in order in f64.
double sum(const Tensor& tensor);

}  // namespace tessera
