#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "program/builder.h"
#include "tensor/tensor.h"

namespace tessera::testing {

/// The elements [begin, end) that a rank has of each label.
class LabelRanges {
 public:
  /// All elements of labels with these extents.
  explicit LabelRanges(const std::map<std::string, int64_t>& extents) {
    for (const auto& [label, extent] : extents) ranges_[label] = {0, extent};
  }

  bool has(const std::string& label) const { return ranges_.contains(label); }
  int64_t begin(const std::string& label) const { return range(label).first; }
  int64_t end(const std::string& label) const { return range(label).second; }
  /// The number of elements.
  int64_t operator()(const std::string& label) const { return end(label) - begin(label); }

  LabelRanges with(const std::string& label, int64_t begin, int64_t end) const {
    LabelRanges result = *this;
    result.ranges_[label] = {begin, end};
    return result;
  }

 private:
  const std::pair<int64_t, int64_t>& range(const std::string& label) const {
    const auto found = ranges_.find(label);
    TESSERA_CHECK(found != ranges_.end(), "a case of labels gives no extent of {}", label);
    return found->second;
  }

  std::map<std::string, std::pair<int64_t, int64_t>> ranges_;
};

/// An input of i32. Its values are those of the whole, and ranks have their parts of them; or, if
/// they are local, a rank has what the function gives for its own ranges.
struct GivenInput {
  std::function<std::vector<int32_t>(const LabelRanges&)> values;
  bool local = false;
};

/// One operation with one text of labels, whose claims a LabelCheck tries.
struct LabelCase {
  std::string operation;                   ///< its name
  std::map<std::string, int64_t> extents;  ///< of the labels that can be split, and of all factors
  /// Writes a program whose last node of that name is made for a rank with these ranges.
  std::function<void(Builder&, const LabelRanges&)> write;
  std::map<size_t, GivenInput> given = {};  ///< by position among the node's inputs
  std::set<size_t> positive = {};           ///< positions of inputs that are above zero
  /// Whole labels that are not tried split: indices would lie outside what the rank has.
  std::set<std::string> indexed = {};
  /// Whether a rank may have a single element of a label.
  bool single = true;
};

}  // namespace tessera::testing
