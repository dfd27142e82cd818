#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"

namespace tessera {

/// The elements [begin, end) of a unit: a flat value that holds several parameters one after
/// another, of which a section is one.
struct Section {
  int unit = 0;  ///< the index of the unit among an operation's units
  int64_t begin = 0;
  int64_t end = 0;
};

/// Sections cut into pieces of at most `elements` elements. All pieces together are the work of one
/// parallel region, however small the sections are. The cuts do not depend on the number of
/// threads.
class SectionPieces {
 public:
  explicit SectionPieces(std::span<const Section> sections, int64_t elements = 65536)
      : elements_(elements), sections_(sections.begin(), sections.end()), firsts_{0} {
    for (const Section& section : sections_) {
      firsts_.push_back(firsts_.back() + (section.end - section.begin + elements - 1) / elements);
    }
  }

  int64_t count() const { return firsts_.back(); }
  /// Returns the index of the first piece of a section.
  int64_t first(size_t section) const { return firsts_[section]; }

  /// Calls body(piece, section, begin, end) for each piece, with the indices of piece and section,
  /// on all threads.
  template <typename Body>
  void for_each(int threads, Body&& body) const {
    parallel_ranges(threads, count(), 1, [&](int64_t first, int64_t last, int) {
      auto section =
          static_cast<size_t>(std::ranges::upper_bound(firsts_, first) - firsts_.begin() - 1);
      for (int64_t piece = first; piece < last; ++piece) {
        while (piece >= firsts_[section + 1]) ++section;
        const Section& whole = sections_[section];
        const int64_t begin = whole.begin + (piece - firsts_[section]) * elements_;
        body(piece, section, begin, std::min(whole.end, begin + elements_));
      }
    });
  }

 private:
  int64_t elements_;
  std::vector<Section> sections_;
  std::vector<int64_t> firsts_;  // the first piece of each section, then their number
};

}  // namespace tessera
