#pragma once

#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "comm/rank_groups.h"
#include "device/accelerator.h"
#include "program/target.h"

namespace tessera {

/// Returns a target with what an open accelerator says of itself, as far as the target does not
/// know it.
inline Target with_accelerator(Target target, const Accelerator& accelerator) {
  const AcceleratorProperties properties = accelerator.properties();
  if (target.memory_bytes == 0) target.memory_bytes = properties.memory_bytes;
  if (target.multiprocessors == 0) target.multiprocessors = properties.multiprocessors;
  return target;
}

/// What a rank provides for running operations: the machine that it runs on, and caches. Nothing
/// here is global, so ranks can be threads of one process.
class Runtime {
 public:
  /// Opens the target's accelerator if it has one, which an option --device chose (a run's is
  /// opened by plan/run_target.h). Throws Error if it cannot.
  explicit Runtime(const Target& target)
      : Runtime(target, target.device == Device::cpu ? nullptr : open_accelerator(target.device)) {}
  /// Takes an accelerator that is open, or null. What it says of itself is in target().
  Runtime(const Target& target, std::unique_ptr<Accelerator> accelerator)
      : target_(accelerator == nullptr ? target : with_accelerator(target, *accelerator)),
        accelerator_(std::move(accelerator)) {}

  const Target& target() const { return target_; }
  int threads() const { return target_.threads; }
  /// Null if operations run on the processor.
  Accelerator* accelerator() const { return accelerator_.get(); }

  /// Gives operations the groups in which they meet other ranks. The groups outlive the runtime.
  void join(RankGroups& groups) { groups_ = &groups; }
  /// Throws InternalError if the rank has not joined any.
  RankGroups& groups() const {
    TESSERA_CHECK(groups_ != nullptr, "an operation over several ranks, of a rank without groups");
    return *groups_;
  }

  /// The rank's only object of a type, made at first use: for example the cache of oneDNN's
  /// primitives. Several threads may ask for it.
  template <typename Cache>
  Cache& cache() {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<void>& slot = caches_[std::type_index(typeid(Cache))];
    if (!slot) slot = std::make_shared<Cache>();
    return *static_cast<Cache*>(slot.get());
  }

 private:
  Target target_;
  std::unique_ptr<Accelerator> accelerator_;
  RankGroups* groups_ = nullptr;
  std::mutex mutex_;  // of caches_
  std::unordered_map<std::type_index, std::shared_ptr<void>> caches_;
};

}  // namespace tessera
