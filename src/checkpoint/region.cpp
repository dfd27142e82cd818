#include "checkpoint/region.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

bool meet(const ElementRun& a, const ElementRun& b) {
  return a.place < b.place + b.length && b.place < a.place + a.length;
}

bool meet(const Region& a, const Region& b) {
  for (size_t dim = 0; dim < a.dims.size(); ++dim) {
    if (!meet(a.dims[dim], b.dims[dim])) return false;
  }
  return true;
}

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

PieceRuns Region::runs() const {
  PieceRuns runs;
  for (const ElementRun& run : dims) runs.push_back({run});
  return runs;
}

std::string Region::text() const {
  std::vector<std::string> words;
  for (const ElementRun& run : dims) {
    words.push_back(fmt::format("{}:{}", run.place, run.place + run.length));
  }
  return "[" + join(words, ", ") + "]";
}

std::vector<Region> boxes_of(const PieceRuns& runs) {
  std::vector<Region> boxes{{}};
  for (const std::vector<ElementRun>& of_dim : runs) {
    std::vector<Region> longer;
    for (const Region& box : boxes) {
      for (const ElementRun& run : of_dim) {
        longer.push_back(box);
        longer.back().dims.push_back(run);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

std::string cover_problem(const Shape& whole, std::span<const Region> regions) {
  int64_t elements = 0;
  for (const Region& region : regions) {
    if (std::ssize(region.dims) != whole.rank()) {
      return fmt::format("the region {} is not of {}", region.text(), whole.text());
    }
    for (int dim = 0; dim < whole.rank(); ++dim) {
      const ElementRun& run = region.dims[static_cast<size_t>(dim)];
      if (run.length > whole[dim] || run.place > whole[dim] - run.length) {
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
  // Those that can meet follow each other when sorted by their first dim.
  std::vector<const Region*> sorted;
  for (const Region& region : regions) {
    if (region.elements() > 0) sorted.push_back(&region);
  }
  if (whole.rank() == 0) return "";
  const auto first = [](const Region* region) { return region->dims[0].place; };
  std::ranges::sort(sorted, {}, first);
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size() && meet(sorted[i]->dims[0], sorted[j]->dims[0]); ++j) {
      if (!meet(*sorted[i], *sorted[j])) continue;
      return fmt::format("its regions {} and {} overlap", sorted[i]->text(), sorted[j]->text());
    }
  }
  return "";
}

}  // namespace tessera
