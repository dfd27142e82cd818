#include "comm/tensor_piece.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace tessera {

TensorPiece::TensorPiece(const Mesh& mesh, const Distribution& distribution, const Shape& whole,
                         int rank)
    : whole_(whole), shape_(whole) {
  for (const Axis axis : mesh.of_view(distribution.view())) {
    const TypeOnAxis& type = distribution.on(axis);
    TESSERA_CHECK(!type.split() || type.dim < whole.rank(), "a split of dim {} of {}", type.dim,
                  whole.text());
    TESSERA_CHECK(type.placement != Placement::varying, "{} over {} is no piece of a whole",
                  type.text(), mesh.name(axis));
  }
  const auto several = [&](Axis axis) { return mesh.size(axis) > 1; };
  for (int dim = 0; dim < whole.rank(); ++dim) {
    if (std::ranges::none_of(distribution.order(dim), several)) continue;
    indices_.resize(static_cast<size_t>(whole.rank()));
    auto& indices = indices_[static_cast<size_t>(dim)];
    indices = piece_of_dim(mesh, distribution, dim, whole[dim], rank);
    shape_ = shape_.with_dim(dim, static_cast<int64_t>(indices.size()));
  }
}

int64_t TensorPiece::element_of_whole(int64_t element) const {
  if (indices_.empty()) return element;
  int64_t place = 0;
  int64_t stride = 1;
  for (int dim = whole_.rank() - 1; dim >= 0; --dim) {
    const auto& indices = indices_[static_cast<size_t>(dim)];
    const int64_t index = element % shape_[dim];
    place += stride * (indices.empty() ? index : indices[static_cast<size_t>(index)]);
    element /= shape_[dim];
    stride *= whole_[dim];
  }
  return place;
}

TensorPiece TensorPiece::part(std::span<const ElementRun> dims) const {
  TESSERA_CHECK(std::ssize(dims) == whole_.rank(), "a part of {} dims of {}", dims.size(),
                whole_.text());
  TensorPiece part = *this;
  part.indices_.resize(dims.size());
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    const auto& [place, length] = dims[dim];
    const int number = static_cast<int>(dim);
    TESSERA_CHECK(place >= 0 && length > 0 && place + length <= shape_[number],
                  "elements {} to {} of dim {} of a piece {}", place, place + length, dim,
                  shape_.text());
    std::vector<int64_t>& indices = part.indices_[dim];
    if (indices.empty()) {
      indices.resize(static_cast<size_t>(shape_[number]));
      std::iota(indices.begin(), indices.end(), int64_t{0});
    }
    indices = {indices.begin() + place, indices.begin() + place + length};
    part.shape_ = part.shape_.with_dim(number, length);
  }
  return part;
}

PieceRuns TensorPiece::runs() const {
  PieceRuns runs(static_cast<size_t>(whole_.rank()));
  for (int dim = 0; dim < whole_.rank(); ++dim) {
    std::vector<ElementRun>& of_dim = runs[static_cast<size_t>(dim)];
    if (indices_.empty() || indices_[static_cast<size_t>(dim)].empty()) {
      if (shape_[dim] > 0) of_dim.push_back({0, shape_[dim]});
      continue;
    }
    for (const int64_t index : indices_[static_cast<size_t>(dim)]) {
      if (!of_dim.empty() && of_dim.back().place + of_dim.back().length == index) {
        ++of_dim.back().length;
      } else {
        of_dim.push_back({index, 1});
      }
    }
  }
  return runs;
}

void TensorPiece::take(const Tensor& whole, const Tensor& piece) const {
  TESSERA_CHECK(
      whole.shape() == whole_ && piece.shape() == shape_ && whole.dtype() == piece.dtype(),
      "a piece {} of {} from {} to {}", shape_.text(), whole_.text(), whole.shape().text(),
      piece.shape().text());
  const auto size = static_cast<size_t>(dtype_size(piece.dtype()));
  const int64_t row = shape_.rank() == 0 ? 1 : shape_[shape_.rank() - 1];
  for (int64_t begin = 0; begin < piece.elements(); begin += row) {
    const int64_t first = element_of_whole(begin);
    const bool together = element_of_whole(begin + row - 1) - first == row - 1;
    const int64_t length = together ? row : 1;
    for (int64_t i = 0; i < row; i += length) {
      const int64_t from = together ? first : element_of_whole(begin + i);
      std::memcpy(piece.raw() + static_cast<size_t>(begin + i) * size,
                  whole.raw() + static_cast<size_t>(from) * size,
                  static_cast<size_t>(length) * size);
    }
  }
}

}  // namespace tessera
