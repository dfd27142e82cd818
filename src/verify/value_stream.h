#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"
#include "tensor/tensor.h"

namespace tessera {

/// What the nodes of a program make on one rank, in the order in which they run. The programs of
/// two layouts have the same operations but for those that move values between ranks, so a node is
/// known by its pass, its block of the model, its operation, and its number among equal ones. Where
/// a layout has more or fewer of these, or they have other outputs, nothing says which is which:
/// ranks that share key heads project them apart from the queries.
class ValueStream {
 public:
  /// Copies what a node made. Views and integers are left out: they are no numbers of their own, or
  /// count rows of one rank.
  void note(const Program& program, const Node& node, std::span<const Tensor> outputs);

  struct Entry {
    std::string place;  ///< "layers.3 attention: linear (forward), output 0"
    std::string nodes;  ///< "layers.3 attention: linear (forward)"
    Distribution distribution;
    Tensor values;
  };
  /// By the order of running.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The entries of an operation at a place that run in a pass, by their number there.
  std::span<const size_t> at(const std::string& place) const;
  /// The number of outputs of each node with that name, in the order in which they run.
  std::span<const size_t> outputs_of(const std::string& nodes) const;

 private:
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<size_t>> by_place_;
  std::map<std::string, std::vector<size_t>> outputs_;
};

/// The first value, in the order of one rank, that a layout makes differently.
struct StreamDifference {
  std::string place;  ///< of the node
  double relative = 0;
  int64_t before = 0;            ///< values of one rank before it
  int64_t unmatched_before = 0;  ///< those of them that could not be compared
};

/// How the values of two layouts compare.
struct StreamComparison {
  std::optional<StreamDifference> first;
  int64_t compared = 0;   ///< values of one rank that the layout makes too
  int64_t unmatched = 0;  ///< those that it makes in another way, or not at all
};

/// Puts the values of a mesh's ranks together as their types say, and compares them with one
/// rank's. A value differs if the difference is more than `bound` of its largest number, or if
/// ranks that must have the same do not.
StreamComparison compare_streams(const ValueStream& one, const Mesh& mesh,
                                 std::span<const ValueStream> ranks, double bound);

}  // namespace tessera
