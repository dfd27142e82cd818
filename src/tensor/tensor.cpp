#include "tensor/tensor.h"

#include <cstring>
#include <type_traits>

#include "tensor/dispatch.h"

namespace tessera {

Tensor::Tensor(MemoryPool& pool, const Shape& shape, DType dtype)
    : buffer_(pool.allocate(shape.elements() * dtype_size(dtype))),
      data_(buffer_->data()),
      shape_(shape),
      dtype_(dtype) {}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype) {
  Tensor result;
  result.data_ = data;
  result.shape_ = shape;
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::reshape(const Shape& shape) const {
  TESSERA_CHECK(shape.elements() == elements(), "{} seen as {}", shape_.text(), shape.text());
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  TESSERA_CHECK(begin >= 0 && begin <= end && end <= shape_[0], "rows {} to {} of {}", begin, end,
                shape_.text());
  const int64_t row = shape_[0] == 0 ? 0 : elements() / shape_[0];
  return view(begin * row, shape_.with_dim(0, end - begin));
}

Tensor Tensor::view(int64_t offset, const Shape& shape) const {
  TESSERA_CHECK(offset >= 0 && offset + shape.elements() <= elements(), "{} at element {} of {}",
                shape.text(), offset, shape_.text());
  Tensor result = *this;
  result.data_ = static_cast<std::byte*>(data_) + offset * dtype_size(dtype_);
  result.shape_ = shape;
  return result;
}

void Tensor::fill_zero() const { std::memset(data_, 0, static_cast<size_t>(bytes())); }

void Tensor::copy_from(const Tensor& other) const {
  TESSERA_CHECK(other.shape_ == shape_ && other.dtype_ == dtype_, "copy of {} {} to {} {}",
                dtype_name(other.dtype_), other.shape_.text(), dtype_name(dtype_), shape_.text());
  std::memcpy(data_, other.data_, static_cast<size_t>(bytes()));
}

void convert(const Tensor& from, const Tensor& to) {
  TESSERA_CHECK(from.shape() == to.shape(), "conversion of {} to {}", from.shape().text(),
                to.shape().text());
  const int64_t count = from.elements();
  dispatch_stored(from.dtype(), [&](auto source) {
    dispatch_stored(to.dtype(), [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      const From* input = from.data<From>();
      To* output = to.data<To>();
      for (int64_t i = 0; i < count; ++i) {
        output[i] = static_cast<To>(static_cast<Compute<To>>(static_cast<Compute<From>>(input[i])));
      }
    });
  });
}

double sum(const Tensor& tensor) {
  return dispatch_wide(tensor.dtype(), [&](auto type) {
    double total = 0;
    for (const auto value : tensor.values<decltype(type)>()) total += static_cast<double>(value);
    return total;
  });
}

}  // namespace tessera
