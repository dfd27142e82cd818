#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

#include "program/target.h"

namespace tessera {

/// What a rank provides for running operations: the machine that it runs on, and caches. Nothing
/// here is global, so ranks can be threads of one process.
class Runtime {
 public:
  explicit Runtime(const Target& target) : target_(target) {}

  const Target& target() const { return target_; }
  int threads() const { return target_.threads; }

  /// The rank's only object of a type, made at first use: for example the cache of oneDNN's
  /// primitives.
  template <typename Cache>
  Cache& cache() {
    std::shared_ptr<void>& slot = caches_[std::type_index(typeid(Cache))];
    if (!slot) slot = std::make_shared<Cache>();
    return *static_cast<Cache*>(slot.get());
  }

 private:
  Target target_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> caches_;
};

}  // namespace tessera
