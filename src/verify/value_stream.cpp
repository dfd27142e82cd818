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

namespace tessera {
namespace {

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

/// How the value lies as a piece of a logical tensor; none if it is no such piece.
std::optional<Distribution> as_pieces(const Mesh& mesh, const Distribution& distribution) {
  const std::span<const Axis> axes = mesh.of_view(distribution.view());
  const auto varies = [&](Axis axis) {
    return distribution.on(axis).placement == Placement::varying;
  };
  if (std::ranges::none_of(axes, varies)) return distribution;
  // Tokens that crossed to the other view are the pieces that they were.
  const Pieces& pieces = distribution.on(axes[0]).pieces;
  if (!std::ranges::all_of(axes, varies) || !pieces.origin) return std::nullopt;
  return *pieces.origin;
}

/// The logical value, put together from what the ranks made.
class Whole {
 public:
  explicit Whole(const Shape& shape)
      : shape_(shape), sums_(static_cast<size_t>(shape.elements())), addends_(sums_.size()) {}

  /// Adds a rank's part. Returns false if it is not of the shape that its type says.
  bool add(const Mesh& mesh, const Distribution& distribution, int rank, const Tensor& part) {
    const TensorPiece piece(mesh, distribution, shape_, rank);
    if (piece.shape() != part.shape()) return false;
    const std::vector<double> numbers = numbers_of(part);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto place = static_cast<size_t>(piece.element_of_whole(static_cast<int64_t>(i)));
      sums_[place] += numbers[i];
      ++addends_[place];
    }
    return true;
  }

  /// The largest difference from one rank's numbers, of which each is the sum of `addends` parts.
  double difference(const std::vector<double>& one, int addends) const {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      const double delta = one[i] - sums_[i];
      if (addends_[i] != addends || std::isnan(delta)) {
        return std::numeric_limits<double>::infinity();
      }
      largest = std::max(largest, std::abs(one[i]));
      difference = std::max(difference, std::abs(delta));
    }
    return difference == 0 ? 0 : difference / largest;
  }

 private:
  Shape shape_;
  std::vector<double> sums_;
  std::vector<int> addends_;
};

int addends_of(const Mesh& mesh, const Distribution& distribution) {
  int addends = 1;
  for (const Axis axis : mesh.of_view(distribution.view())) {
    if (distribution.on(axis).placement == Placement::partial) addends *= mesh.size(axis);
  }
  return addends;
}

/// The relative difference of a value; none if it cannot be compared.
std::optional<double> difference(const ValueStream::Entry& one, const Mesh& mesh,
                                 std::span<const ValueStream::Entry* const> ranks) {
  const std::optional<Distribution> lies = as_pieces(mesh, ranks[0]->distribution);
  if (!lies) return std::nullopt;
  const std::vector<double> numbers = numbers_of(one.values);
  double largest = 0;
  for (const RankSet& members : sets_with_one_copy(mesh, *lies)) {
    Whole whole(one.values.shape());
    for (const int rank : members) {
      const Tensor& part = ranks[static_cast<size_t>(rank)]->values;
      // Another logical shape is another value: heads that ranks share are repeated for each.
      if (!whole.add(mesh, *lies, rank, part)) return std::nullopt;
    }
    largest = std::max(largest, whole.difference(numbers, addends_of(mesh, *lies)));
  }
  return largest;
}

std::span<const size_t> numbers_at(const std::map<std::string, std::vector<size_t>>& map,
                                   const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? std::span<const size_t>() : found->second;
}

}  // namespace

void ValueStream::note(const Program& program, const Node& node, std::span<const Tensor> outputs) {
  if (node.operation->view(0)) return;
  const std::string nodes = name_of(node);
  outputs_[nodes].push_back(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    Tensor copy(outputs[i].shape(), outputs[i].dtype());
    copy.copy_from(outputs[i]);
    const std::string place = fmt::format("{}, output {}", nodes, i);
    by_place_[place].push_back(entries_.size());
    entries_.push_back({place, nodes, program.spec(node.outputs[i]).distribution, std::move(copy)});
  }
}

std::span<const size_t> ValueStream::at(const std::string& place) const {
  return numbers_at(by_place_, place);
}

std::span<const size_t> ValueStream::outputs_of(const std::string& nodes) const {
  return numbers_at(outputs_, nodes);
}

StreamComparison compare_streams(const ValueStream& one, const Mesh& mesh,
                                 std::span<const ValueStream> ranks, double bound) {
  StreamComparison result;
  for (size_t i = 0; i < one.entries().size(); ++i) {
    const ValueStream::Entry& entry = one.entries()[i];
    const std::span<const size_t> equal = one.at(entry.place);
    const auto number = static_cast<size_t>(std::ranges::find(equal, i) - equal.begin());
    std::vector<const ValueStream::Entry*> made;
    for (const ValueStream& rank : ranks) {
      const bool same_nodes =
          std::ranges::equal(one.outputs_of(entry.nodes), rank.outputs_of(entry.nodes));
      if (same_nodes) made.push_back(&rank.entries()[rank.at(entry.place)[number]]);
    }
    const auto relative =
        made.size() == ranks.size() ? difference(entry, mesh, made) : std::nullopt;
    if (relative && *relative > bound && !result.first) {
      result.first = {entry.place, *relative, result.compared + result.unmatched, result.unmatched};
    }
    ++(relative ? result.compared : result.unmatched);
  }
  return result;
}

}  // namespace tessera
