// CommonParts finds the elements that a stored region and a rank's piece share: it intersects their
// runs dim by dim and walks the combinations. cover_problem() checks that regions cover a tensor.

#include "checkpoint/region.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

bool overlap(const ElementRun& a, const ElementRun& b) {
  return a.begin < b.begin + b.length && b.begin < a.begin + a.length;
}

bool overlap(const Region& a, const Region& b) {
  for (size_t dim = 0; dim < a.dims.size(); ++dim) {
    if (!overlap(a.dims[dim], b.dims[dim])) return false;
  }
  return true;
}

/// The elements that a region and a piece of one tensor share: the combinations of some runs in
/// each dim. Inner dims that both have whole are left out, so that visit() gets long runs.
class CommonParts {
 public:
  CommonParts(const Region& region, const TensorPiece& piece) {
    for (size_t number = 0; number < region.dims.size(); ++number) {
      const ElementRun& own = region.dims[number];
      Dim dim{.region_extent = own.length};
      for (const ElementRun& run : piece.runs(static_cast<int>(number))) {
        const ElementRun both = intersection(own, run);
        if (both.length > 0) {
          dim.runs.push_back(
              {both.begin - own.begin, dim.piece_extent + both.begin - run.begin, both.length});
        }
        dim.piece_extent += run.length;
      }
      std::ranges::sort(dim.runs, {}, &Shared::in_region);
      dims_.push_back(std::move(dim));
    }
    while (!dims_.empty() && dims_.back().is_whole()) {
      inner_elements_ *= dims_.back().region_extent;
      dims_.pop_back();
    }
    int64_t region_stride = inner_elements_;
    int64_t piece_stride = inner_elements_;
    for (size_t number = dims_.size(); number-- > 0;) {
      Dim& dim = dims_[number];
      dim.region_stride = region_stride;
      dim.piece_stride = piece_stride;
      region_stride *= dim.region_extent;
      piece_stride *= dim.piece_extent;
    }
  }

  void for_each(int64_t begin, int64_t end, const CommonElements& visit) const {
    if (begin < end) visit_dim(0, {0, 0}, {begin, end}, visit);
  }

 private:
  /// A run of indices of a dim that both have.
  struct Shared {
    int64_t in_region, in_piece, length;
  };
  struct Dim {
    std::vector<Shared> runs;                     // in the order of the region
    int64_t region_extent = 0, piece_extent = 0;  // elements of the dim
    int64_t region_stride = 1, piece_stride = 1;  // elements from one index to the next

    bool is_whole() const {
      return runs.size() == 1 && runs[0].length == region_extent && runs[0].length == piece_extent;
    }
  };
  struct Offsets {
    int64_t in_region, in_piece;
  };
  struct Range {
    int64_t begin, end;
  };

  /// Visits the combinations of dim `number` and the dims inside it, from the element `base` on.
  void visit_dim(size_t number, Offsets base, Range range, const CommonElements& visit) const {
    if (number == dims_.size()) return visit_run(base, inner_elements_, range, visit);
    const Dim& dim = dims_[number];
    for (const Shared& run : dim.runs) {
      const Offsets first{base.in_region + run.in_region * dim.region_stride,
                          base.in_piece + run.in_piece * dim.piece_stride};
      if (number + 1 == dims_.size()) {
        visit_run(first, run.length * inner_elements_, range, visit);
        continue;
      }
      const int64_t stride = dim.region_stride;
      const int64_t from = std::max<int64_t>(0, (range.begin - first.in_region) / stride);
      const int64_t to = std::min(run.length, (range.end - first.in_region + stride - 1) / stride);
      for (int64_t i = from; i < to; ++i) {
        visit_dim(number + 1, {first.in_region + i * stride, first.in_piece + i * dim.piece_stride},
                  range, visit);
      }
    }
  }

  /// Visits the elements of a run that are within `range`, which counts the region's elements.
  void visit_run(Offsets first, int64_t length, Range range, const CommonElements& visit) const {
    const int64_t from = std::max(first.in_region, range.begin);
    const int64_t to = std::min(first.in_region + length, range.end);
    if (from < to) visit(from, first.in_piece + from - first.in_region, to - from);
  }

  std::vector<Dim> dims_;       // outermost first, without the innermost ones that both have whole
  int64_t inner_elements_ = 1;  // of the dims left out
};

}  // namespace

Region Region::whole_of(const Shape& shape) {
  Region region;
  for (const int64_t extent : shape.dims()) region.dims.push_back({0, extent});
  return region;
}

Shape Region::shape() const {
  std::vector<int64_t> extents;
  for (const ElementRun& run : dims) extents.push_back(run.length);
  return Shape(extents);
}

TensorPiece Region::piece_of(const Shape& whole) const {
  std::vector<std::vector<ElementRun>> runs;
  for (const ElementRun& run : dims) {
    runs.emplace_back();
    if (run.length > 0) runs.back().push_back(run);
  }
  return {whole, runs};
}

std::string Region::text() const {
  std::vector<std::string> words;
  for (const ElementRun& run : dims) {
    words.push_back(fmt::format("{}:{}", run.begin, run.begin + run.length));
  }
  return "[" + join(words, ", ") + "]";
}

std::vector<Region> regions_of(const TensorPiece& piece) {
  std::vector<Region> regions{{}};
  for (int dim = 0; dim < piece.whole().rank(); ++dim) {
    std::vector<Region> longer;
    for (const Region& region : regions) {
      for (const ElementRun& run : piece.runs(dim)) {
        longer.push_back(region);
        longer.back().dims.push_back(run);
      }
    }
    regions = std::move(longer);
  }
  return regions;
}

void visit_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end,
                  const CommonElements& visit) {
  CommonParts(region, piece).for_each(begin, end, visit);
}

bool any_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end) {
  bool found = false;
  visit_common(region, piece, begin, end, [&](int64_t, int64_t, int64_t) { found = true; });
  return found;
}

std::string cover_problem(const Shape& whole, std::span<const Region> regions) {
  int64_t elements = 0;
  for (const Region& region : regions) {
    if (std::ssize(region.dims) != whole.rank()) {
      return fmt::format("the region {} is not of {}", region.text(), whole.text());
    }
    for (int dim = 0; dim < whole.rank(); ++dim) {
      const ElementRun& run = region.dims[static_cast<size_t>(dim)];
      if (run.length > whole[dim] || run.begin > whole[dim] - run.length) {
        return fmt::format("the region {} is not within {}", region.text(), whole.text());
      }
    }
    elements += region.elements();
    if (elements > whole.elements()) break;
  }
  if (elements != whole.elements()) {
    return fmt::format("its regions have {} elements of {}",
                       elements > whole.elements() ? "more" : "fewer", whole.text());
  }
  // The regions have as many elements as the tensor, so they cover it unless two overlap. Sorted by
  // their begin in the first dim, the regions that can overlap one follow it directly.
  std::vector<const Region*> sorted;
  for (const Region& region : regions) {
    if (region.elements() > 0) sorted.push_back(&region);
  }
  if (whole.rank() == 0) return "";
  const auto first_begin = [](const Region* region) { return region->dims[0].begin; };
  std::ranges::sort(sorted, {}, first_begin);
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size() && overlap(sorted[i]->dims[0], sorted[j]->dims[0]);
         ++j) {
      if (!overlap(*sorted[i], *sorted[j])) continue;
      return fmt::format("its regions {} and {} overlap", sorted[i]->text(), sorted[j]->text());
    }
  }
  return "";
}

}  // namespace tessera
