#include "checkpoint/checkpoint_state.h"

#include "base/error.h"

namespace tessera {
namespace {

template <typename T>
const T& find_value(const CheckpointState& state, const std::string& name, const char* type) {
  const auto found = state.values.find(name);
  if (found == state.values.end()) {
    throw Error("the checkpoint of step {} does not say '{}'; it was made by another version ({})",
                state.step, name, state.created_by);
  }
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    throw Error(
        "the checkpoint of step {} has a '{}' that is not {}; it was made by another "
        "version ({})",
        state.step, name, type, state.created_by);
  }
  return *value;
}

}  // namespace

int64_t CheckpointState::integer(const std::string& name) const {
  return find_value<int64_t>(*this, name, "an integer");
}

double CheckpointState::number(const std::string& name) const {
  return find_value<double>(*this, name, "a real number");
}

const std::string& CheckpointState::text(const std::string& name) const {
  return find_value<std::string>(*this, name, "a text");
}

}  // namespace tessera
