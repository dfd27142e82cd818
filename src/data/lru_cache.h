#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

/// A cache that keeps the `capacity` values used last, each under a number as its key. It is for
/// open files: data in many files then needs few file descriptors. A value that is no longer in the
/// cache lives on while a caller holds it. Many threads may use a cache.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  /// Returns the value of `key`. If it is not in the cache, make() makes it. The lock is held while
  /// make() runs, so no two threads make the same value.
  template <typename Make>
  std::shared_ptr<const Value> get(size_t key, Make&& make) {
    const std::lock_guard lock(mutex_);
    if (auto found = move_to_front(key)) return found;
    std::shared_ptr<const Value> made = make();
    if (entries_.size() == capacity_) entries_.pop_back();
    entries_.insert(entries_.begin(), {key, made});
    return made;
  }
  /// Returns the value of `key` if it is in the cache, otherwise null.
  std::shared_ptr<const Value> find(size_t key) {
    const std::lock_guard lock(mutex_);
    return move_to_front(key);
  }

 private:
  using Entry = std::pair<size_t, std::shared_ptr<const Value>>;

  std::shared_ptr<const Value> move_to_front(size_t key) {
    const auto found = std::ranges::find(entries_, key, &Entry::first);
    if (found == entries_.end()) return nullptr;
    std::rotate(entries_.begin(), found, found + 1);
    return entries_.front().second;
  }

  const size_t capacity_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // the one used last is the first
};

}  // namespace tessera
