#pragma once

#include <vector>

#include "program/program.h"

namespace tessera {

/// When each computed value's memory comes and goes: made by its node, released after its last use.
/// The executor and the memory plan both follow this one account.
class Lifetimes {
 public:
  /// Follows every value through the program's nodes, once.
  explicit Lifetimes(const Program& program);

  /// The values released after node `node` has run.
  const std::vector<Value>& released_after(int node) const {
    return released_[static_cast<size_t>(node)];
  }
  /// The value whose memory `value` takes over instead of having its own; null for none.
  Value takes_over(Value value) const { return takes_over_[static_cast<size_t>(value.id)]; }
  /// The last node that uses the value; that which makes it when none does; -1 for values that are
  /// not computed here or are the program's outputs.
  int last_use(Value value) const { return last_use_[static_cast<size_t>(value.id)]; }

 private:
  std::vector<std::vector<Value>> released_;
  std::vector<Value> takes_over_;
  std::vector<int> last_use_;
};

}  // namespace tessera
