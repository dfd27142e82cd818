#include "comm/fingerprint.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "base/words.h"

namespace tessera {

std::string Fingerprint::text() const {
  const bool message = collective == Collective::message;
  std::string result = message ? fmt::format("message {}", sequence)
                               : fmt::format("call {}, {}", sequence, word(collective));
  if (reduces(collective)) result += fmt::format(" ({})", word(reduction));
  result += fmt::format(" '{}'", name);
  if (collective != Collective::barrier) {
    result += fmt::format(" of {} {}", dtype_name(dtype), shape.text());
  }
  if (from >= 0) result += fmt::format(" from rank {}", from);
  if (to >= 0) result += fmt::format(" to rank {}", to);
  if (layout != 0) result += fmt::format(" in pieces {:016x}", layout);
  if (layout_after != 0) result += fmt::format(" to pieces {:016x}", layout_after);
  return result;
}

uint64_t Fingerprint::hash() const {
  std::array<int64_t, 10 + Shape::kMaximumRank> numbers{static_cast<int64_t>(collective),
                                                        sequence,
                                                        static_cast<int64_t>(dtype),
                                                        static_cast<int64_t>(reduction),
                                                        from,
                                                        to,
                                                        static_cast<int64_t>(layout),
                                                        static_cast<int64_t>(layout_after),
                                                        shape.rank()};
  std::ranges::copy(shape.dims(), numbers.begin() + 9);
  return tessera::hash(std::as_bytes(std::span(numbers)), tessera::hash(name));
}

std::string ranks_text(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace tessera
