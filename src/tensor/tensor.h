#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/memory_pool.h"
#include "tensor/shape.h"

namespace tessera {

/// A contiguous array: a shape, an element type and a reference to memory. Copies share the memory,
/// as views do; a constant Tensor is a constant handle, not constant data.
class Tensor {
 public:
  /// Holds nothing; defined() is false.
  Tensor() = default;
  /// Memory from a pool, contents undefined.
  Tensor(MemoryPool& pool, const Shape& shape, DType dtype);
  /// Memory that someone else owns and keeps alive.
  static Tensor wrap(void* data, const Shape& shape, DType dtype);

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * dtype_size(dtype_); }

  /// The elements; T must be the tensor's element type.
  template <typename T>
  T* data() const {
    TESSERA_CHECK(dtype_of<T> == dtype_, "a tensor of {} read as {}", dtype_name(dtype_),
                  dtype_name(dtype_of<T>));
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> values() const {
    return {data<T>(), static_cast<size_t>(elements())};
  }
  std::byte* raw() const { return static_cast<std::byte*>(data_); }

  /// The same memory under another shape of as many elements.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, end) of the outermost dim.
  Tensor slice(int64_t begin, int64_t end) const;
  /// A view of `shape` that starts at element `offset` of this tensor's memory.
  Tensor view(int64_t offset, const Shape& shape) const;

  void fill_zero() const;
  /// Copies the elements of a tensor of the same shape and type.
  void copy_from(const Tensor& other) const;

 private:
  std::shared_ptr<Buffer> buffer_;
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Converts between floating types element by element, rounding to nearest even; shapes are equal.
void convert(const Tensor& from, const Tensor& to);

/// The sum of an f32 or f64 tensor, taken in f64 in order.
double sum(const Tensor& tensor);

}  // namespace tessera
