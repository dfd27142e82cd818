#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "program/program.h"

namespace tessera {

/// The values that a node reads or writes, by what names the value that owns the memory.
template <typename Name>
struct TouchedMemory {
  /// Notes what a node touches. `name_of` returns the name of a value that owns memory.
  template <typename NameOf>
  TouchedMemory(const Program& program, const Node& node, NameOf&& name_of) {
    const auto base = [&](Value value) { return name_of(program.base(value)); };
    for (const Value output : node.outputs) written.insert(base(output));
    for (const int input : node.operation->updated_inputs()) {
      written.insert(base(node.inputs[static_cast<size_t>(input)]));
    }
    all = written;
    for (const Value input : node.inputs) all.insert(base(input));
  }

  TouchedMemory() = default;

  /// Adds what another node touches.
  void add(const TouchedMemory& other) {
    all.insert(other.all.begin(), other.all.end());
    written.insert(other.written.begin(), other.written.end());
  }

  /// Returns whether one of the two writes what the other one reads or writes.
  bool conflicts_with(const TouchedMemory& other) const {
    const auto overlap = [](const std::set<Name>& a, const std::set<Name>& b) {
      return std::ranges::any_of(a, [&](const Name& value) { return b.contains(value); });
    };
    return overlap(written, other.all) || overlap(all, other.written);
  }

  std::set<Name> written;
  std::set<Name> all;  // written or read
};

/// The kind and the name of a value that is kept between actions, which all programs share.
using KeptName = std::pair<ValueKind, std::string>;

/// Returns the kept values that a node of a program reads or writes.
TouchedMemory<KeptName> touched_kept_values(const Program& program, const Node& node);

}  // namespace tessera
