#include "verify/value_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"
#include "comm/rank_sets.h"
#include "comm/tensor_piece.h"
#include "tensor/dispatch.h"

// compare_streams() takes each value of one rank, finds the same output of the same node on every
// rank of the mesh, puts their parts together (class Whole), and compares the whole with the value.

namespace tessera {
namespace {

/// Returns the name of a node: "layers.3 attention: linear (forward)".
std::string name_of(const Node& node) {
  const std::string layer = node.layer < 0 ? "" : fmt::format("layers.{} ", node.layer);
  return fmt::format("{}{}: {} ({})", layer, word(node.block), node.operation->name(),
                     word(node.phase));
}

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  dispatch_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    for (const T element : tensor.values<T>()) {
      numbers.push_back(static_cast<double>(static_cast<Compute<T>>(element)));
    }
  });
  return numbers;
}

/// Returns the distribution of a value if each rank holds a piece of one whole value, or an addend
/// of it; none if ranks hold values that differ in other ways (Placement::varying).
std::optional<Distribution> as_pieces(const Mesh& mesh, const Distribution& distribution) {
  const std::span<const Axis> axes = mesh.axes_of(distribution.view());
  const auto varies = [&](Axis axis) {
    return distribution.on(axis).placement == Placement::varying;
  };
  if (std::ranges::none_of(axes, varies)) return distribution;
  // Tokens that were moved between the views of the mesh still are the pieces from before the move.
  const Pieces& pieces = distribution.on(axes[0]).pieces;
  if (!std::ranges::all_of(axes, varies) || !pieces.origin) return std::nullopt;
  return *pieces.origin;
}

/// The logical value that the parts of all ranks make up.
class Whole {
 public:
  explicit Whole(const Shape& shape)
      : shape_(shape), sums_(static_cast<size_t>(shape.elements())), addends_(sums_.size()) {}

  /// Adds the part of a rank. Returns false if its shape is not that of its distribution.
  bool add(const Mesh& mesh, const Distribution& distribution, int rank, const Tensor& part) {
    const TensorPiece piece(mesh, distribution, shape_, rank);
    if (piece.shape() != part.shape()) return false;
    const std::vector<double> numbers = numbers_of(part);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto index = static_cast<size_t>(piece.element_of_whole(static_cast<int64_t>(i)));
      sums_[index] += numbers[i];
      ++addends_[index];
    }
    return true;
  }

  /// Returns the largest difference from one rank's numbers, divided by the largest of these.
  /// Returns infinity if a number is not the sum of `addends` parts, or a difference is NaN.
  double difference(const std::vector<double>& one_rank, int addends) const {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < one_rank.size(); ++i) {
      const double delta = one_rank[i] - sums_[i];
      if (addends_[i] != addends || std::isnan(delta)) {
        return std::numeric_limits<double>::infinity();
      }
      largest = std::max(largest, std::abs(one_rank[i]));
      difference = std::max(difference, std::abs(delta));
    }
    return difference == 0 ? 0 : difference / largest;
  }

 private:
  Shape shape_;
  std::vector<double> sums_;
  std::vector<int> addends_;  // the number of parts in each sum
};

/// Returns the number of ranks whose parts are summed to the value.
int addends_of(const Mesh& mesh, const Distribution& distribution) {
  int addends = 1;
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    if (distribution.on(axis).placement == Placement::partial) addends *= mesh.size(axis);
  }
  return addends;
}

/// Returns the relative difference of a value between one rank and several, if it can be compared.
/// `ranks` has null for ranks of a pipeline stage that does not compute it.
std::optional<double> difference(const ValueStream::Entry& one_rank, const Mesh& mesh,
                                 std::span<const ValueStream::Entry* const> ranks) {
  const auto known =
      std::ranges::find_if(ranks, [](const auto* entry) { return entry != nullptr; });
  if (known == ranks.end()) return std::nullopt;
  const std::optional<Distribution> distribution = as_pieces(mesh, (*known)->distribution);
  if (!distribution) return std::nullopt;
  const std::vector<double> numbers = numbers_of(one_rank.values);
  double largest = 0;
  const auto is_missing = [&](int rank) { return ranks[static_cast<size_t>(rank)] == nullptr; };
  for (const RankSet& members : sets_with_one_copy(mesh, *distribution)) {
    if (std::ranges::all_of(members, is_missing)) continue;
    if (std::ranges::any_of(members, is_missing)) return std::nullopt;
    Whole whole(one_rank.values.shape());
    for (const int rank : members) {
      const Tensor& part = ranks[static_cast<size_t>(rank)]->values;
      // Another logical shape cannot be compared: heads that ranks share are repeated on each.
      if (!whole.add(mesh, *distribution, rank, part)) return std::nullopt;
    }
    largest = std::max(largest, whole.difference(numbers, addends_of(mesh, *distribution)));
  }
  return largest;
}

std::span<const size_t> find_indices(const std::map<std::string, std::vector<size_t>>& map,
                                     const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? std::span<const size_t>() : found->second;
}

}  // namespace

void ValueStream::note(const Program& program, const Node& node, std::span<const Tensor> outputs) {
  if (node.operation->view(0)) return;
  const std::string node_name = name_of(node);
  outputs_[node_name].push_back(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    Tensor copy(outputs[i].shape(), outputs[i].dtype());
    copy.copy_from(outputs[i]);
    const std::string name = fmt::format("{}, output {}", node_name, i);
    by_name_[name].push_back(entries_.size());
    entries_.push_back(
        {name, node_name, program.spec(node.outputs[i]).distribution, std::move(copy)});
  }
}

std::span<const size_t> ValueStream::indices_of(const std::string& name) const {
  return find_indices(by_name_, name);
}

std::span<const size_t> ValueStream::outputs_of(const std::string& node_name) const {
  return find_indices(outputs_, node_name);
}

StreamComparison compare_streams(const ValueStream& one_rank, const Mesh& mesh,
                                 std::span<const ValueStream> ranks, double bound) {
  StreamComparison result;
  for (size_t i = 0; i < one_rank.entries().size(); ++i) {
    const ValueStream::Entry& entry = one_rank.entries()[i];
    const std::span<const size_t> alike = one_rank.indices_of(entry.name);
    const auto occurrence = static_cast<size_t>(std::ranges::find(alike, i) - alike.begin());
    std::vector<const ValueStream::Entry*> rank_entries;
    for (const ValueStream& rank : ranks) {
      const bool same_nodes = std::ranges::equal(one_rank.outputs_of(entry.node_name),
                                                 rank.outputs_of(entry.node_name));
      rank_entries.push_back(same_nodes ? &rank.entries()[rank.indices_of(entry.name)[occurrence]]
                                        : nullptr);
    }
    const std::optional<double> relative = difference(entry, mesh, rank_entries);
    if (relative && *relative > bound && !result.first) {
      result.first = {entry.name, *relative, result.compared + result.unmatched, result.unmatched};
    }
    ++(relative ? result.compared : result.unmatched);
  }
  return result;
}

}  // namespace tessera
