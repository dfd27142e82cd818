#include "comm/distribution.h"

#include <fmt/format.h>

namespace tessera {

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return "tensor";
    case Axis::context:
      return "context";
    case Axis::pipeline:
      return "pipeline";
    case Axis::data:
      return "data";
    case Axis::expert:
      return "expert";
    case Axis::expert_data:
      return "expert_data";
  }
  return "?";
}

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
    result += fmt::format("{}: ", axis_name(axis));
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
