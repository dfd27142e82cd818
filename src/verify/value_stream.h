#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"
#include "tensor/tensor.h"

namespace tessera {

/// The values that the nodes of a program compute on one rank, in the order in which the nodes run.
/// The programs of two layouts have the same operations, except those that move values between
/// ranks. So a node is identified by its name (layer, block, operation and pass) and its index
/// among nodes of that name. Nodes of a name cannot be matched if one layout has more of them, or
/// if they have other numbers of outputs. For example, ranks that share key heads project the keys
/// apart from the queries.
class ValueStream {
 public:
  /// Copies the outputs of a node. Leaves out views, which are no values of their own, and
  /// integers, which count rows of one rank.
  void note(const Program& program, const Node& node, std::span<const Tensor> outputs);

  /// One output of a node.
  struct Entry {
    std::string name;       ///< "layers.3 attention: linear (forward), output 0"
    std::string node_name;  ///< "layers.3 attention: linear (forward)"
    Distribution distribution;
    Tensor values;
  };
  // All lists are in the order in which the nodes ran.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns the indices of the entries with a name.
  std::span<const size_t> indices_of(const std::string& name) const;
  /// Returns the number of outputs of each node with a name.
  std::span<const size_t> outputs_of(const std::string& node_name) const;

 private:
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<size_t>> by_name_;
  std::map<std::string, std::vector<size_t>> outputs_;
};

/// The first value, in the order of one rank, that differs in a layout.
struct StreamDifference {
  std::string name;  ///< of the output: see ValueStream::Entry
  double relative = 0;
  int64_t before = 0;            ///< the number of values of one rank before this one
  int64_t unmatched_before = 0;  ///< the number of these that could not be compared
};

/// The result of a comparison of two layouts' values.
struct StreamComparison {
  std::optional<StreamDifference> first;
  int64_t compared = 0;   ///< the number of one rank's values that were compared
  int64_t unmatched = 0;  ///< the number of the others, which have no counterpart in the layout
};

/// Puts the values of a mesh's ranks together as their distributions say, and compares them with
/// those of one rank. A value differs if the difference is more than `bound` times its largest
/// number, or if ranks that must have the same numbers do not.
StreamComparison compare_streams(const ValueStream& one_rank, const Mesh& mesh,
                                 std::span<const ValueStream> ranks, double bound);

}  // namespace tessera
