#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// The named axes of the mesh, inner to outer in the order of their communication demand; `expert`
/// and `expert_data` are the folded view of tensor × context × data that the experts see.
enum class Axis : uint8_t { tensor, context, pipeline, data, expert, expert_data };
inline constexpr int kAxisCount = 6;
std::string_view axis_name(Axis axis);

/// How many ranks lie along each axis.
struct Mesh {
  std::array<int, kAxisCount> sizes{1, 1, 1, 1, 1, 1};
  int size(Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
};

/// How a value lies over one axis (docs/architecture.md): the ranks hold one logical copy
/// (invariant), the same value used on own data (replicated), pieces along a dim (sharded), or
/// addends of a sum not yet taken (partial).
enum class Placement : uint8_t { invariant, replicated, sharded, partial };

/// A value's placement on every axis. On an axis of one rank all placements are the same thing, and
/// it is written as invariant.
class Distribution {
 public:
  Placement placement(Axis axis) const { return axes_[static_cast<size_t>(axis)].placement; }
  /// The sharded dim; only for Placement::sharded.
  int dim(Axis axis) const { return axes_[static_cast<size_t>(axis)].dim; }
  Distribution with(Axis axis, Placement placement, int dim = 0) const;
  /// The type of the gradient: replicated and partial change places, the others stay.
  Distribution dual() const;
  /// "tensor: sharded(0), data: partial"; "invariant" when it is so on every axis.
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
