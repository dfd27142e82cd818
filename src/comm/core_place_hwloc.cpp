#include <memory>

#include <hwloc.h>

#include "base/affinity.h"
#include "comm/core_place.h"

namespace tessera {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
using CoreSet = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

/// Returns the number of the first part of a kind that has all of these cores; -1 if none has.
int part_with(hwloc_topology* machine, hwloc_obj_type_t kind, const CoreSet& cores) {
  const auto after = [&](hwloc_obj_t part) {
    return hwloc_get_next_obj_by_type(machine, kind, part);
  };
  for (hwloc_obj_t part = after(nullptr); part != nullptr; part = after(part)) {
    if (hwloc_bitmap_isincluded(cores.get(), part->cpuset) != 0) {
      return static_cast<int>(part->logical_index);
    }
  }
  return -1;
}

}  // namespace

CorePlace core_place_on(hwloc_topology* machine, std::span<const int> cores) {
  const CoreSet set(hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  for (const int core : cores) hwloc_bitmap_set(set.get(), static_cast<unsigned>(core));
  if (hwloc_bitmap_iszero(set.get())) return {};
  return {.package = part_with(machine, HWLOC_OBJ_PACKAGE, set),
          .numa = part_with(machine, HWLOC_OBJ_NUMANODE, set)};
}

CorePlace core_place() {
  hwloc_topology* found = nullptr;
  if (hwloc_topology_init(&found) != 0) return {};
  const Topology machine(found, &hwloc_topology_destroy);
  if (hwloc_topology_load(found) != 0) return {};
  return core_place_on(found, cores_at_start());
}

}  // namespace tessera
