#include "comm/tensor_piece.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns `length` elements of a list of runs, from its element `begin` on, as runs.
std::vector<ElementRun> part_of(std::span<const ElementRun> runs, int64_t begin, int64_t length) {
  std::vector<ElementRun> part;
  int64_t offset = 0;
  for (const ElementRun& run : runs) {
    const ElementRun overlap = intersection({begin, length}, {offset, run.length});
    if (overlap.length > 0) part.push_back({run.begin + overlap.begin - offset, overlap.length});
    offset += run.length;
  }
  return part;
}

}  // namespace

TensorPiece::TensorPiece(const Shape& whole) : whole_(whole) {
  for (const int64_t extent : whole.dims()) append_run(runs_.emplace_back(), {0, extent});
  complete();
}

TensorPiece::TensorPiece(const Mesh& mesh, const Distribution& distribution, const Shape& whole,
                         int rank)
    : TensorPiece(whole) {
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    const TypeOnAxis& type = distribution.on(axis);
    TESSERA_CHECK(!type.split() || type.dim < whole.rank(), "a split of dim {} of {}", type.dim,
                  whole.text());
    TESSERA_CHECK(type.placement != Placement::varying, "{} over {} is no piece of a whole",
                  type.text(), mesh.name(axis));
  }
  const auto is_shared = [&](Axis axis) { return mesh.size(axis) > 1; };
  for (int dim = 0; dim < whole.rank(); ++dim) {
    if (std::ranges::none_of(distribution.order(dim), is_shared)) continue;
    std::vector<ElementRun>& own = runs_[static_cast<size_t>(dim)];
    own.clear();
    for (const int64_t index : piece_of_dim(mesh, distribution, dim, whole[dim], rank)) {
      append_run(own, {index, 1});
    }
  }
  complete();
}

TensorPiece::TensorPiece(const Shape& whole, std::span<const std::vector<ElementRun>> runs)
    : whole_(whole) {
  TESSERA_CHECK(std::ssize(runs) == whole.rank(), "runs of {} dims of {}", runs.size(),
                whole.text());
  for (const std::vector<ElementRun>& dim_runs : runs) {
    runs_.emplace_back();
    const int64_t extent = whole[static_cast<int>(runs_.size()) - 1];
    for (const ElementRun& run : dim_runs) {
      TESSERA_CHECK(run.begin >= 0 && run.length >= 0 && run.begin + run.length <= extent,
                    "elements {} to {} of {}", run.begin, run.begin + run.length, extent);
      append_run(runs_.back(), run);
    }
  }
  complete();
}

void TensorPiece::complete() {
  ends_.clear();
  std::vector<int64_t> extents;
  for (const std::vector<ElementRun>& dim_runs : runs_) {
    int64_t end = 0;
    ends_.emplace_back();
    for (const ElementRun& run : dim_runs) ends_.back().push_back(end += run.length);
    extents.push_back(end);
  }
  shape_ = Shape(extents);
  const auto one_run = [](const std::vector<ElementRun>& dim_runs) { return dim_runs.size() <= 1; };
  is_whole_ = shape_ == whole_ && std::ranges::all_of(runs_, one_run);
}

int64_t TensorPiece::element_of_whole(int64_t element) const {
  if (is_whole()) return element;
  int64_t whole_index = 0;
  int64_t stride = 1;
  for (int dim = whole_.rank() - 1; dim >= 0; --dim) {
    const std::vector<int64_t>& ends = ends_[static_cast<size_t>(dim)];
    const int64_t index = element % shape_[dim];
    const auto run = std::ranges::upper_bound(ends, index) - ends.begin();
    const ElementRun& found = runs(dim)[static_cast<size_t>(run)];
    whole_index += stride * (found.begin + found.length - ends[static_cast<size_t>(run)] + index);
    element /= shape_[dim];
    stride *= whole_[dim];
  }
  return whole_index;
}

TensorPiece TensorPiece::part(std::span<const ElementRun> dim_runs) const {
  TESSERA_CHECK(std::ssize(dim_runs) == whole_.rank(), "a part of {} dims of {}", dim_runs.size(),
                whole_.text());
  std::vector<std::vector<ElementRun>> parts;
  for (int dim = 0; dim < whole_.rank(); ++dim) {
    const auto& [begin, length] = dim_runs[static_cast<size_t>(dim)];
    TESSERA_CHECK(begin >= 0 && length > 0 && begin + length <= shape_[dim],
                  "elements {} to {} of dim {} of a piece {}", begin, begin + length, dim,
                  shape_.text());
    parts.push_back(part_of(runs(dim), begin, length));
  }
  return {whole_, parts};
}

void TensorPiece::copy_from(const Tensor& whole, const Tensor& piece) const {
  TESSERA_CHECK(
      whole.shape() == whole_ && piece.shape() == shape_ && whole.dtype() == piece.dtype(),
      "a piece {} of {} from {} to {}", shape_.text(), whole_.text(), whole.shape().text(),
      piece.shape().text());
  const auto element_bytes = static_cast<size_t>(dtype_size(piece.dtype()));
  const int last_dim = shape_.rank() - 1;
  const std::vector<ElementRun> one_element{{0, 1}};  // a tensor without dims has one element
  const std::span<const ElementRun> runs_of_row =
      last_dim < 0 ? std::span(one_element) : runs(last_dim);
  for (int64_t element = 0; element < piece.elements();) {
    for (const ElementRun& run : runs_of_row) {
      std::memcpy(piece.raw() + static_cast<size_t>(element) * element_bytes,
                  whole.raw() + static_cast<size_t>(element_of_whole(element)) * element_bytes,
                  static_cast<size_t>(run.length) * element_bytes);
      element += run.length;
    }
  }
}

}  // namespace tessera
