#pragma once

#include <map>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Finds the uses of a program's parameters, and the node that makes a value. Reads each node once:
/// call it again after nodes were appended.
class ParameterUses {
 public:
  /// Refers to the program.
  explicit ParameterUses(const Program& program) : program_(program) {}

  /// Returns the values in a parameter's memory that nodes read, in the order of the nodes. A node
  /// that only gives the memory another name does not count as a reader; an elided conversion does.
  /// Values that an elided conversion made are not in the list.
  const std::vector<Value>& of(Value parameter);
  /// Returns the first value that is this part of a parameter: with the same offset and shape.
  Value declared(const ViewOf& part, const Shape& shape);
  /// Returns the node that made a computed value. Throws InternalError if no node did.
  const Node& maker(Value value);

  /// Forgets what it read. Call it after nodes were changed.
  void forget();

 private:
  void read_on();

  const Program& program_;
  size_t nodes_ = 0;                         // the number read so far
  size_t values_ = 0;                        // the number read so far
  std::map<int, std::vector<Value>> uses_;   // by the parameter's id
  std::map<int, std::vector<Value>> views_;  // by the id of what they are views of
  std::map<int, size_t> makers_;             // by the value's id
};

/// Returns whether a value in a parameter's memory would be there with more ranks too: no elided
/// conversion is between them.
inline bool in_stored_memory(const ValueInfo& value) {
  return !value.view || !value.view->converted;
}

}  // namespace tessera
