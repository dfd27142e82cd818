#pragma once

#include <map>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Finds the uses of a program's parameters, and the node that makes a value. Reads each node once:
/// ask again after nodes were appended.
class ParameterUses {
 public:
  /// Refers to the program.
  explicit ParameterUses(const Program& program) : program_(program) {}

  /// Returns what nodes read that lies in a parameter's memory as the parameter does, in their
  /// order. A node that only gives the memory another name is none of them; a conversion that would
  /// move it on more ranks is one.
  const std::vector<Value>& of(Value parameter);
  /// Returns the first value that is this part of a parameter: of the same place and shape.
  Value declared(const ViewOf& place, const Shape& shape);
  /// Returns the node that made a computed value. Throws InternalError if no node did.
  const Node& maker(Value value);

  /// Forgets what it read, of which nodes were changed.
  void forget();

 private:
  void read_on();

  const Program& program_;
  size_t nodes_ = 0;                         // that were read
  size_t values_ = 0;                        // that were read
  std::map<int, std::vector<Value>> uses_;   // by the parameter's id
  std::map<int, std::vector<Value>> views_;  // by the id of what they are views of
  std::map<int, size_t> makers_;             // by the value's id
};

/// Returns whether a value of a parameter's memory would be in it with more ranks too: no
/// conversion that would move something lies between.
inline bool in_stored_memory(const ValueInfo& value) {
  return !value.view || !value.view->converted;
}

}  // namespace tessera
