#include "comm/piece_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {

PieceLayout::PieceLayout(int64_t outer, int64_t extent, int64_t inner,
                         std::vector<std::vector<ElementRun>> runs)
    : outer_(outer), extent_(extent), inner_(inner), runs_(std::move(runs)) {
  TESSERA_CHECK(outer >= 0 && extent >= 0 && inner >= 0 && !runs_.empty(),
                "{} ranks' pieces of {} x [{}] x {}", runs_.size(), outer, extent, inner);
  for (std::vector<ElementRun>& rank_runs : runs_) {
    std::vector<ElementRun> joined;
    for (const ElementRun& run : rank_runs) append_run(joined, run);
    rank_runs = std::move(joined);
  }
  check_cover();
  StreamHash stream;
  const auto add = [&](int64_t number) { stream.update(std::as_bytes(std::span(&number, 1))); };
  for (const int64_t number : {outer, extent, inner}) add(number);
  for (const std::vector<ElementRun>& rank_runs : runs_) {
    add(static_cast<int64_t>(rank_runs.size()));
    for (const ElementRun& run : rank_runs) {
      add(run.begin);
      add(run.length);
    }
  }
  hash_ = stream.value();
}

void PieceLayout::check_cover() const {
  std::vector<ElementRun> all;
  for (const std::vector<ElementRun>& rank_runs : runs_) {
    all.insert(all.end(), rank_runs.begin(), rank_runs.end());
  }
  std::ranges::sort(all, {}, &ElementRun::begin);
  int64_t end = 0;
  for (const ElementRun& run : all) {
    TESSERA_CHECK(run.begin == end && run.length > 0,
                  "the pieces {} do not cover each element once: one begins at {}, not at {}",
                  text(), run.begin, end);
    end += run.length;
  }
  TESSERA_CHECK(end == extent_, "the pieces {} end at {}", text(), end);
}

int64_t PieceLayout::elements(int position) const {
  int64_t length = 0;
  for (const ElementRun& run : runs_[static_cast<size_t>(position)]) length += run.length;
  return outer_ * length * inner_;
}

int64_t PieceLayout::max_elements() const {
  int64_t most = 0;
  for (int position = 0; position < ranks(); ++position) most = std::max(most, elements(position));
  return most;
}

bool PieceLayout::is_contiguous(int position) const {
  const std::vector<ElementRun>& runs = runs_[static_cast<size_t>(position)];
  return runs.size() <= 1 && (outer_ <= 1 || elements(position) == elements());
}

bool PieceLayout::all_contiguous() const {
  for (int position = 0; position < ranks(); ++position) {
    if (!is_contiguous(position)) return false;
  }
  return true;
}

int64_t PieceLayout::piece_begin(int position) const {
  const RangeIterator range(*this, position);
  return range.done() ? 0 : range.whole_offset();
}

bool PieceLayout::is_even() const {
  const int64_t equal_part = elements() / ranks();
  for (int position = 0; position < ranks(); ++position) {
    if (!is_contiguous(position) || elements(position) != equal_part) return false;
    if (piece_begin(position) != position * equal_part) return false;
  }
  return true;
}

std::string PieceLayout::text() const {
  std::vector<std::string> pieces;
  for (const std::vector<ElementRun>& rank_runs : runs_) {
    std::vector<std::string> words;
    words.reserve(rank_runs.size());
    for (const ElementRun& run : rank_runs) {
      const int64_t last = run.begin + run.length - 1;
      words.push_back(run.length == 1 ? fmt::format("{}", last)
                                      : fmt::format("{}-{}", run.begin, last));
    }
    pieces.push_back(words.empty() ? "none" : join(words, " "));
  }
  return fmt::format("{} x [{}] x {}: {}", outer_, extent_, inner_, join(pieces, " | "));
}

PieceLayout even_pieces(int64_t elements, int ranks) {
  return pieces_of(Shape{elements}, sharded(0), ranks);
}

PieceLayout pieces_of(const Shape& whole, const TypeOnAxis& type, int ranks) {
  TESSERA_CHECK(type.placement == Placement::sharded && type.dim < whole.rank(),
                "pieces of {} that is {}", whole.text(), type.text());
  const auto dim = static_cast<size_t>(type.dim);
  const int64_t length = whole[type.dim];
  TESSERA_CHECK(type.repeats > 0 && length % type.repeats == 0, "{} repeats of {} elements",
                type.repeats, length);
  const int64_t extent = length / type.repeats;
  std::vector<std::vector<ElementRun>> runs;
  for (int position = 0; position < ranks; ++position) {
    runs.push_back(piece_runs(extent, position, ranks, type.pieces));
  }
  const Shape outer(whole.dims().first(dim));
  const Shape inner(whole.dims().subspan(dim + 1));
  return {outer.elements() * type.repeats, extent, inner.elements(), std::move(runs)};
}

Shape joined_shape(const Shape& piece, const TypeOnAxis& type, int ranks) {
  return piece.with_dim(type.dim, joined_extent(type, ranks, piece[type.dim]));
}

}  // namespace tessera
