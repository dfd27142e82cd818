#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/parallel.h"

namespace tessera {

/// The elements [begin, end) of one of several flat values: a parameter within its unit.
struct Section {
  int unit = 0;  ///< which value
  int64_t begin = 0;
  int64_t end = 0;
};

/// Sections cut into pieces, which together are the work of one parallel region, however small they
/// are. Where the cuts fall does not depend on the threads.
class SectionPieces {
 public:
  explicit SectionPieces(std::span<const Section> sections) {
    constexpr int64_t kElements = 65536;
    for (size_t i = 0; i < sections.size(); ++i) {
      for (int64_t begin = sections[i].begin; begin < sections[i].end; begin += kElements) {
        pieces_.push_back({i, begin, std::min(sections[i].end, begin + kElements)});
      }
    }
  }

  int64_t count() const { return std::ssize(pieces_); }

  /// Calls body(piece's number, section's number, begin, end) for each piece, on all threads.
  template <typename Body>
  void for_each(int threads, Body&& body) const {
    parallel_ranges(threads, count(), 1, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const Piece& piece = pieces_[static_cast<size_t>(i)];
        body(i, piece.section, piece.begin, piece.end);
      }
    });
  }

 private:
  struct Piece {
    size_t section;
    int64_t begin;
    int64_t end;
  };
  std::vector<Piece> pieces_;
};

}  // namespace tessera
