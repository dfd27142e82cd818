#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The named axes of the mesh, from inner to outer in the order of their communication demand.
/// `expert` and `expert_data` are the folded view of tensor × context × data that the experts see.
enum class Axis : uint8_t { tensor, context, pipeline, data, expert, expert_data };
template <>
inline constexpr std::array<std::string_view, 6> kWords<Axis>{"tensor", "context", "pipeline",
                                                              "data",   "expert",  "expert_data"};
inline constexpr int kAxisCount = 6;

/// The number of ranks along each axis.
struct Mesh {
  std::array<int, kAxisCount> sizes{1, 1, 1, 1, 1, 1};
  int size(Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
};

/// How a value lies over one axis (docs/architecture.md). The ranks hold one logical copy
/// (invariant), the same value that each uses on its own data (replicated), pieces along a dim
/// (sharded), or addends of a sum that has not been taken (partial).
enum class Placement : uint8_t { invariant, replicated, sharded, partial };

/// The placement of a value on every axis. On an axis of one rank all placements mean the same, and
/// invariant is written.
class Distribution {
 public:
  Placement placement(Axis axis) const { return axes_[static_cast<size_t>(axis)].placement; }
  /// The sharded dim; only for Placement::sharded.
  int dim(Axis axis) const { return axes_[static_cast<size_t>(axis)].dim; }
  Distribution with(Axis axis, Placement placement, int dim = 0) const;
  /// The distribution of the gradient: replicated and partial change places, the others stay.
  Distribution dual() const;
  /// The distribution as text: "tensor: sharded(0), data: partial", or "invariant" if it is so on
  /// every axis.
  std::string text() const;
  bool operator==(const Distribution&) const = default;

 private:
  struct OnAxis {
    Placement placement = Placement::invariant;
    int8_t dim = 0;
    bool operator==(const OnAxis&) const = default;
  };
  std::array<OnAxis, kAxisCount> axes_{};
};

}  // namespace tessera
