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
// The offset of ranks that share a clock is in the bounds of all of them. The bounds of the first
// rank are 0 and 0. Which ranks share a clock follows from its id, never from the bounds: those of
// two clocks may overlap by chance.

#include "comm/clock_offset.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/monotonic.h"

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

  bool empty() const { return lowest > highest; }
  Bounds within(const Bounds& other) const {
    return {std::max(lowest, other.lowest), std::min(highest, other.highest)};
  }
};

/// What all ranks have told each other: for each its clock's id and its exchanges.
class Readings {
 public:
  explicit Readings(std::vector<uint64_t> numbers) : numbers_(std::move(numbers)) {}

  size_t ranks() const { return numbers_.size() / kNumbersOfRank; }
  uint64_t clock_id(size_t rank) const { return numbers_[rank * kNumbersOfRank]; }
  /// Returns the bounds that all exchanges of a rank with the first rank leave.
  Bounds bounds_of(size_t rank) const {
    if (rank == 0) return {0, 0};
    Bounds bounds;
    for (size_t number = 0; number < kExchanges; ++number) {
      const Exchange first = exchange(0, number);
      const Exchange own = exchange(rank, number);
      bounds = bounds.within({first.entered - own.left, first.left - own.entered});
    }
    return bounds;
  }

 private:
  static constexpr size_t kNumbersOfRank = 1 + 2 * kExchanges;

  Exchange exchange(size_t rank, size_t number) const {
    const size_t index = rank * kNumbersOfRank + 1 + 2 * number;
    return {std::bit_cast<double>(numbers_[index]), std::bit_cast<double>(numbers_[index + 1])};
  }

  std::vector<uint64_t> numbers_;
};

/// Returns the bounds that all ranks which share a rank's clock leave.
Bounds bounds_of_clock(const Readings& readings, size_t rank) {
  const Bounds own = readings.bounds_of(rank);
  Bounds bounds = own;
  for (size_t other = 0; other < readings.ranks(); ++other) {
    if (readings.clock_id(other) != readings.clock_id(rank)) continue;
    bounds = bounds.within(readings.bounds_of(other));
  }
  // Copies of a virtual machine that was started once have equal ids and different clocks. No
  // offset is in the bounds of all of them, so each keeps its own.
  return bounds.empty() ? own : bounds;
}

/// Returns the id of the machine's monotonic clock as this process reads it.
uint64_t monotonic_clock_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) {
    // Nothing says which processes share the clock, but the threads of this one do.
    static const uint64_t id = uint64_t{std::random_device()()} << 32 | std::random_device()();
    return id;
  }
  std::error_code failed;  // a kernel that has no time namespaces has no such link
  const std::filesystem::path name_space =
      std::filesystem::read_symlink("/proc/self/ns/time", failed);
  return hash(boot + " " + name_space.string());
}

}  // namespace

RankClock monotonic_clock() { return {.seconds = monotonic_seconds, .id = monotonic_clock_id()}; }

ClockOffset measure_clock_offset(const RankControl& control, const RankClock& clock) {
  if (!control.several()) return {.at = clock.seconds()};
  control.wait();  // each exchange begins when all ranks have left the barrier before it
  std::vector<uint64_t> own{clock.id};
  for (size_t number = 0; number < kExchanges; ++number) {
    own.push_back(std::bit_cast<uint64_t>(clock.seconds()));
    control.wait();
    own.push_back(std::bit_cast<uint64_t>(clock.seconds()));
  }
  const double begun = std::bit_cast<double>(own[1]);
  const double ended = std::bit_cast<double>(own.back());
  const Readings readings(control.gather(own));
  const Bounds bounds = bounds_of_clock(readings, static_cast<size_t>(control.rank()));
  return {.at = (begun + ended) / 2,
          .seconds = (bounds.lowest + bounds.highest) / 2,
          .uncertainty = (bounds.highest - bounds.lowest) / 2};
}

}  // namespace tessera
