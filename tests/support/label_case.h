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

/// An operation is made for consecutive elements of a label, and is asked for others.
class NotConsecutive : public InternalError {
 public:
  using InternalError::InternalError;
};

/// The elements that a rank has of each label: mostly [begin, end), of zigzag pieces several such
/// runs.
class LabelRanges {
 public:
  using Runs = std::vector<std::pair<int64_t, int64_t>>;

  /// All elements of labels with these extents.
  explicit LabelRanges(const std::map<std::string, int64_t>& extents) {
    for (const auto& [label, extent] : extents) runs_[label] = {{0, extent}};
  }

  bool has(const std::string& label) const { return runs_.contains(label); }
  /// The first element and the end. Throws NotConsecutive if there are gaps between.
  int64_t begin(const std::string& label) const { return only_run(label).first; }
  int64_t end(const std::string& label) const { return only_run(label).second; }
  /// The number of elements.
  int64_t operator()(const std::string& label) const { return std::ssize(elements(label)); }
  /// The elements, in ascending order.
  std::vector<int64_t> elements(const std::string& label) const {
    std::vector<int64_t> result;
    for (const auto& [begin, end] : runs(label)) {
      for (int64_t element = begin; element < end; ++element) result.push_back(element);
    }
    return result;
  }

  LabelRanges with(const std::string& label, Runs runs) const {
    LabelRanges result = *this;
    result.runs_[label] = std::move(runs);
    return result;
  }

 private:
  const Runs& runs(const std::string& label) const {
    const auto found = runs_.find(label);
    TESSERA_CHECK(found != runs_.end(), "a case of labels gives no extent of {}", label);
    return found->second;
  }
  const std::pair<int64_t, int64_t>& only_run(const std::string& label) const {
    if (runs(label).size() != 1) throw NotConsecutive(label + " has several runs");
    return runs(label).front();
  }

  std::map<std::string, Runs> runs_;
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
