#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

/// A cache of things identified by number, such as open files. It keeps the `most` that were used
/// last, so data in many files needs few descriptors. Many threads may use it.
template <typename Thing>
class LatelyUsed {
 public:
  explicit LatelyUsed(size_t most) : most_(most) {}

  /// Returns the thing with this number. Calls make() to make it if it is not kept. Only one thread
  /// at a time makes one.
  template <typename Make>
  std::shared_ptr<const Thing> get(size_t number, Make&& make) {
    const std::lock_guard lock(mutex_);
    if (auto found = take_forward(number)) return found;
    std::shared_ptr<const Thing> made = make();
    if (kept_.size() == most_) kept_.pop_back();
    kept_.insert(kept_.begin(), {number, made});
    return made;
  }

  /// Returns the thing if it is kept, otherwise null.
  std::shared_ptr<const Thing> find(size_t number) {
    const std::lock_guard lock(mutex_);
    return take_forward(number);
  }

 private:
  using Entry = std::pair<size_t, std::shared_ptr<const Thing>>;

  std::shared_ptr<const Thing> take_forward(size_t number) {
    const auto found = std::ranges::find(kept_, number, &Entry::first);
    if (found == kept_.end()) return nullptr;
    std::rotate(kept_.begin(), found, found + 1);
    return kept_.front().second;
  }

  const size_t most_;
  std::mutex mutex_;
  std::vector<Entry> kept_;  // most recently used first
};

}  // namespace tessera
