#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/action.h"
#include "program/program.h"
#include "program/target.h"

namespace tessera {

/// What overlapped_order() goes by.
struct OverlapOptions {
  /// Returns how long a node takes, in seconds. Ranks with the same order of nodes must get the
  /// same numbers for the same nodes, since they must make their calls in the same order.
  std::function<double(const Program& program, const Node& node)> seconds;
  /// The bytes that values and workspaces may take beyond those of the order as it was written.
  int64_t memory = 0;
  /// The machine that workspaces are counted for. It too must be the same on these ranks.
  Target target = {};
};

/// Returns an order of a program's nodes (see Program::reorder()) in which other lanes work beside
/// the compute lane for as long as they can; empty if it is the order that they have. The bits of
/// all results stay: nodes that use the same memory, of which one writes it, keep their order.
///
/// The nodes are taken one after the other, as the lanes would run them. A node of another lane
/// comes as soon as what it depends on has been computed and its lane is free. Where the compute
/// lane would have to wait for another, it takes the first later node that need not wait. A node
/// that is taken ahead of an earlier one must leave memory within the bound: at the most `memory`
/// bytes more than the written order has there, while the node runs and after it. The operands and
/// the workspace of a node of another lane count until the compute lane has awaited it. This looks
/// at no later node and at no other program, so plan_memory() may find more.
///
/// `segments` are those that a list runs, in the order in which a frame runs them. Together they
/// have all nodes. MegaScale-MoE orders the operations of a layer by hand (its section 4.1).
std::vector<int> overlapped_order(const Program& program, std::span<const Segment> segments,
                                  const OverlapOptions& options);

}  // namespace tessera
