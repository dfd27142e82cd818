#include "tensor/shape.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace tessera {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  TESSERA_CHECK(rank_ <= kMaximumRank, "a shape has {} dims, at most {} are allowed", rank_,
                kMaximumRank);
  for (const int64_t dim : dims) TESSERA_CHECK(dim >= 0, "a dim of size {}", dim);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

size_t Shape::position(int index) const {
  const int from_start = index < 0 ? index + rank_ : index;
  TESSERA_CHECK(from_start >= 0 && from_start < rank_, "dim {} of the shape {}", index, text());
  return static_cast<size_t>(from_start);
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims()) product *= dim;
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (int i = 0; i + 1 < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
  return product;
}

Shape Shape::with_dim(int index, int64_t size) const {
  Shape result = *this;
  result.dims_[position(index)] = size;
  return result;
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

}  // namespace tessera
