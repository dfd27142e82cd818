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

/// Returns a target with the memory and multiprocessors that an open accelerator reports, where the
/// target does not know them.
inline Target with_accelerator(Target target, const Accelerator& accelerator) {
  const AcceleratorProperties properties = accelerator.properties();
  if (target.memory_bytes == 0) target.memory_bytes = properties.memory_bytes;
  if (target.multiprocessors == 0) target.multiprocessors = properties.multiprocessors;
  return target;
}

/// The environment in which a rank runs operations: its target, its open accelerator, its groups of
/// ranks, and caches. Nothing here is global, so ranks can be threads of one process.
class Runtime {
 public:
  /// Opens the target's accelerator if it has one. Throws Error if it cannot be opened. For a run,
  /// plan/run_target.h opens the accelerator instead.
  explicit Runtime(const Target& target)
      : Runtime(target, target.device == Device::cpu ? nullptr : open_accelerator(target.device)) {}
  /// Takes an open accelerator, or null. What it reports fills in unknown facts of target().
  Runtime(const Target& target, std::unique_ptr<Accelerator> accelerator)
      : target_(accelerator == nullptr ? target : with_accelerator(target, *accelerator)),
        accelerator_(std::move(accelerator)) {}

  const Target& target() const { return target_; }
  int threads() const { return target_.threads; }
  /// Returns the accelerator; null if operations run on the processor.
  Accelerator* accelerator() const { return accelerator_.get(); }

  /// Gives operations their groups of ranks for collectives, which must outlive the runtime.
  void join(RankGroups& groups) { groups_ = &groups; }
  bool has_groups() const { return groups_ != nullptr; }
  /// Returns the groups. Throws InternalError if the rank has not joined any.
  RankGroups& groups() const {
    TESSERA_CHECK(groups_ != nullptr, "an operation needs groups, but its rank joined none");
    return *groups_;
  }

  /// Returns the rank's only object of a type, made at first use: for example the cache of oneDNN's
  /// primitives. Several threads may call it.
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
  std::mutex mutex_;  // guards caches_
  std::unordered_map<std::type_index, std::shared_ptr<void>> caches_;
};

}  // namespace tessera
