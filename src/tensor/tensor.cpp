#include "tensor/tensor.h"

#include <algorithm>
#include <new>
#include <type_traits>

#include <sys/mman.h>

#include "base/text.h"
#include "device/accelerator.h"
#include "tensor/alignment.h"
#include "tensor/dispatch.h"

namespace tessera {

Tensor::Tensor(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype) {
  const bool large = bytes() >= kHugePage;  // huge pages need memory that is aligned to them
  const auto alignment = static_cast<std::align_val_t>(large ? kHugePage : kAlignment);
  const auto size = static_cast<size_t>(aligned_bytes(bytes()));
  auto* memory = static_cast<std::byte*>(::operator new(size, alignment, std::nothrow));
  if (memory == nullptr) throw Error("out of memory: {} were asked for", format_bytes(bytes()));
  if (large) ::madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  owned_.reset(memory, [=](std::byte* block) { ::operator delete(block, alignment); });
  data_ = memory;
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype, Accelerator* accelerator) {
  Tensor result;
  result.data_ = data;
  result.shape_ = shape;
  result.dtype_ = dtype;
  result.accelerator_ = accelerator;
  return result;
}

Device Tensor::device() const {
  return accelerator_ != nullptr ? accelerator_->device() : Device::cpu;
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
  const int64_t row_size = shape_[0] == 0 ? 0 : elements() / shape_[0];
  return view(begin * row_size, shape_.with_dim(0, end - begin));
}

Tensor Tensor::view(int64_t offset, const Shape& shape) const {
  TESSERA_CHECK(offset >= 0 && offset + shape.elements() <= elements(), "{} at element {} of {}",
                shape.text(), offset, shape_.text());
  Tensor result = *this;
  result.data_ = static_cast<std::byte*>(data_) + offset * dtype_size(dtype_);
  result.shape_ = shape;
  return result;
}

void Tensor::fill_zero() const { std::fill_n(raw(), bytes(), std::byte{0}); }

void Tensor::copy_from(const Tensor& source) const {
  TESSERA_CHECK(source.shape_ == shape_ && source.dtype_ == dtype_, "copy of {} {} to {} {}",
                dtype_name(source.dtype_), source.shape_.text(), dtype_name(dtype_), shape_.text());
  std::copy_n(source.raw(), bytes(), raw());
}

void upload(std::span<const std::byte> from, const Tensor& to) {
  TESSERA_CHECK(static_cast<int64_t>(from.size()) == to.bytes(), "{} bytes for a tensor of {}",
                from.size(), to.bytes());
  if (to.accelerator() != nullptr) {
    to.accelerator()->upload(from, to.address());
  } else {
    std::ranges::copy(from, static_cast<std::byte*>(to.address()));
  }
}

void readback(const Tensor& from, std::span<std::byte> to) {
  TESSERA_CHECK(static_cast<int64_t>(to.size()) == from.bytes(), "a tensor of {} bytes for {}",
                from.bytes(), to.size());
  if (from.accelerator() != nullptr) {
    from.accelerator()->readback(from.address(), to);
  } else {
    std::copy_n(static_cast<const std::byte*>(from.address()), to.size(), to.data());
  }
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.accelerator() == nullptr) return tensor;
  Tensor copy(tensor.shape(), tensor.dtype());
  readback(tensor, {copy.raw(), static_cast<size_t>(copy.bytes())});
  return copy;
}

std::vector<double> read_numbers(const Tensor& from) {
  TESSERA_CHECK(from.dtype() == DType::f64, "a tensor of {} read as f64", dtype_name(from.dtype()));
  std::vector<double> numbers(static_cast<size_t>(from.elements()));
  readback(from, std::as_writable_bytes(std::span(numbers)));
  return numbers;
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
