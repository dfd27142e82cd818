#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera {

/// The sizes of a tensor's dims, outermost first; at most kMaximumRank of them. A scalar is [1]. A
/// default Shape has no dims and one element.
class Shape {
 public:
  static constexpr int kMaximumRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  /// Returns the size of one dim. Negative indices count from the end: dim(-1) is the innermost.
  int64_t dim(int index) const { return dims_[position(index)]; }
  int64_t operator[](int index) const { return dim(index); }
  int64_t elements() const;
  /// Returns the product of all dims but the last: the number of rows as a matrix.
  int64_t rows() const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  /// Returns the shape with the size of one dim replaced.
  Shape with_dim(int index, int64_t size) const;
  /// Returns the shape as text: "[4, 16]".
  std::string text() const;
  bool operator==(const Shape& other) const;

 private:
  /// Returns the index in dims_ of the dim `index`, which may be negative.
  size_t position(int index) const;

  std::array<int64_t, kMaximumRank> dims_{};
  int rank_ = 0;
};

}  // namespace tessera
