#include "checkpoint/region_copy.h"

namespace tessera {

RegionCopy::RegionCopy(const Region& box, const PieceRuns& piece) {
  for (size_t number = 0; number < box.dims.size(); ++number) {
    const ElementRun& own = box.dims[number];
    Dim dim{.box_extent = own.length};
    for (const ElementRun& run : piece[number]) {
      const int64_t begin = std::max(own.place, run.place);
      const int64_t end = std::min(own.place + own.length, run.place + run.length);
      if (begin < end) {
        dim.runs.push_back({begin - own.place, dim.piece_extent + begin - run.place, end - begin});
      }
      dim.piece_extent += run.length;
    }
    std::ranges::sort(dim.runs, {}, &Shared::in_box);
    dims_.push_back(std::move(dim));
  }
  const auto whole = [](const Dim& dim) {
    return dim.runs.size() == 1 && dim.runs[0].length == dim.box_extent &&
           dim.runs[0].length == dim.piece_extent;
  };
  while (!dims_.empty() && whole(dims_.back())) {
    inner_ *= dims_.back().box_extent;
    dims_.pop_back();
  }
  int64_t box_stride = inner_;
  int64_t piece_stride = inner_;
  for (size_t number = dims_.size(); number-- > 0;) {
    Dim& dim = dims_[number];
    dim.box_stride = box_stride;
    dim.piece_stride = piece_stride;
    box_stride *= dim.box_extent;
    piece_stride *= dim.piece_extent;
  }
}

bool RegionCopy::any(int64_t begin, int64_t end) const {
  bool found = false;
  for_each(begin, end, [&](int64_t, int64_t, int64_t) { found = true; });
  return found;
}

}  // namespace tessera
