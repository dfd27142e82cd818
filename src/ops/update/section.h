#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"

namespace tessera {

/// The elements [begin, end) of a unit. A unit is a flat value that holds several parameters one
/// after the other, and a section is one parameter or a piece of one.
struct Section {
  int unit = 0;  ///< the index of the unit among an operation's units
  int64_t begin = 0;
  int64_t end = 0;
};

/// Returns the member `section` of each element.
template <typename WithSection>
std::vector<Section> plain_sections(const std::vector<WithSection>& elements) {
  std::vector<Section> sections;
  for (const WithSection& element : elements) sections.push_back(element.section);
  return sections;
}

/// Cuts sections into pieces of at most `piece_elements` elements, whatever the number of threads.
/// One parallel region works on the pieces of all sections: small ones leave no thread idle.
class SectionPieces {
 public:
  explicit SectionPieces(std::span<const Section> sections, int64_t piece_elements = 65536)
      : piece_elements_(piece_elements),
        sections_(sections.begin(), sections.end()),
        first_pieces_{0} {
    for (const Section& section : sections_) {
      first_pieces_.push_back(first_pieces_.back() +
                              (section.end - section.begin + piece_elements - 1) / piece_elements);
    }
  }

  int64_t count() const { return first_pieces_.back(); }
  /// Returns the index of the first piece of a section.
  int64_t first_piece_of(size_t section) const { return first_pieces_[section]; }

  /// Calls body(piece, section, begin, end) for each piece, on all threads: the index of the piece,
  /// the index of its section, and the piece's elements in the unit.
  template <typename Body>
  void for_each(int threads, Body&& body) const {
    parallel_ranges(threads, count(), 1, [&](int64_t first_piece, int64_t end_piece, int) {
      auto section = static_cast<size_t>(std::ranges::upper_bound(first_pieces_, first_piece) -
                                         first_pieces_.begin() - 1);
      for (int64_t piece = first_piece; piece < end_piece; ++piece) {
        while (piece >= first_pieces_[section + 1]) ++section;
        const Section& whole = sections_[section];
        const int64_t begin = whole.begin + (piece - first_pieces_[section]) * piece_elements_;
        body(piece, section, begin, std::min(whole.end, begin + piece_elements_));
      }
    });
  }

 private:
  int64_t piece_elements_;
  std::vector<Section> sections_;
  std::vector<int64_t> first_pieces_;  // of each section, then the number of all pieces
};

}  // namespace tessera
