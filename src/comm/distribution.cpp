#include "comm/distribution.h"

#include <fmt/format.h>

namespace tessera {

Distribution Distribution::with(Axis axis, Placement placement, int dim) const {
  Distribution result = *this;
  result.axes_[static_cast<size_t>(axis)] = {
      placement, static_cast<int8_t>(placement == Placement::sharded ? dim : 0)};
  return result;
}

Distribution Distribution::dual() const {
  Distribution result = *this;
  for (auto& [placement, dim] : result.axes_) {
    if (placement == Placement::replicated) {
      placement = Placement::partial;
    } else if (placement == Placement::partial) {
      placement = Placement::replicated;
    }
  }
  return result;
}

std::string Distribution::text() const {
  std::string result;
  for (int i = 0; i < kAxisCount; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (placement(axis) == Placement::invariant) continue;
    if (!result.empty()) result += ", ";
    result += fmt::format("{}: ", word(axis));
    switch (placement(axis)) {
      case Placement::replicated:
        result += "replicated";
        break;
      case Placement::partial:
        result += "partial";
        break;
      default:
        result += fmt::format("sharded({})", dim(axis));
    }
  }
  return result.empty() ? "invariant" : result;
}

}  // namespace tessera
