// Each exchange is a barrier, which a rank enters at b and leaves at a, by its own clock. No rank
// leaves before all have entered. With an offset o of the first rank's clock (B, A), therefore
//
//   b + o <= A  and  B <= a + o,  so  B - a <= o <= A - b.
//
// This is NTP's exchange (RFC 5905, section 8): the bounds are as far apart as its round trip,
// (a - b) + (A - B), and its estimate is their middle. NTP keeps the exchange with the shortest
// round trip. The bounds of every exchange hold, so their intersection is kept here, which is no
// wider than that.
//
// Two ranks whose bounds overlap share a clock: clocks of different machines count from different
// moments, such as their starts, and differ by far more than the bounds. The offset is then in the
// bounds of both. Those of the first rank are 0 and 0.

#include "comm/clock_offset.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera {
namespace {

constexpr size_t kExchanges = 16;

/// When a rank has entered and left a barrier, by its own clock.
struct Exchange {
  double entered = 0;
  double left = 0;
};

/// The offsets that are possible.
struct Bounds {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();

  bool overlap(const Bounds& other) const {
    return lowest <= other.highest && other.lowest <= highest;
  }
  Bounds within(const Bounds& other) const {
    return {std::max(lowest, other.lowest), std::min(highest, other.highest)};
  }
};

Exchange exchange_of(std::span<const uint64_t> bits, size_t rank, size_t number) {
  const std::span<const uint64_t> pair = bits.subspan(2 * (rank * kExchanges + number), 2);
  return {std::bit_cast<double>(pair[0]), std::bit_cast<double>(pair[1])};
}

/// Returns the bounds that all exchanges of a rank with the first rank leave.
Bounds bounds_of(std::span<const uint64_t> bits, size_t rank) {
  if (rank == 0) return {0, 0};
  Bounds bounds;
  for (size_t number = 0; number < kExchanges; ++number) {
    const Exchange first = exchange_of(bits, 0, number);
    const Exchange own = exchange_of(bits, rank, number);
    bounds = bounds.within({first.entered - own.left, first.left - own.entered});
  }
  return bounds;
}

}  // namespace

ClockOffset measure_clock_offset(const RankControl& control, const std::function<double()>& clock) {
  if (!control.several()) return {.at = clock()};
  control.wait();  // each exchange begins when all ranks have left the barrier before it
  std::vector<uint64_t> own;
  for (size_t number = 0; number < kExchanges; ++number) {
    own.push_back(std::bit_cast<uint64_t>(clock()));
    control.wait();
    own.push_back(std::bit_cast<uint64_t>(clock()));
  }
  const std::vector<uint64_t> all = control.gather(own);
  const auto rank = static_cast<size_t>(control.rank());
  const Bounds own_bounds = bounds_of(all, rank);
  Bounds bounds = own_bounds;
  for (size_t other = 0; other < all.size() / own.size(); ++other) {
    const Bounds of_other = bounds_of(all, other);
    if (of_other.overlap(own_bounds)) bounds = bounds.within(of_other);
  }
  const double begun = std::bit_cast<double>(own.front());
  const double ended = std::bit_cast<double>(own.back());
  return {.at = (begun + ended) / 2,
          .seconds = (bounds.lowest + bounds.highest) / 2,
          .uncertainty = (bounds.highest - bounds.lowest) / 2};
}

}  // namespace tessera
