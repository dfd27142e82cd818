#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

/// Memory that calls of one object use anew, one for each thread that is in a call at once.
template <typename Scratch>
class ScratchPool {
 public:
  /// A Scratch that no other thread has, for as long as this lives; the pool must outlive it.
  class Lease {
   public:
    Lease(ScratchPool& pool, std::unique_ptr<Scratch> scratch)
        : pool_(pool), scratch_(std::move(scratch)) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(scratch_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  /// The memory is unspecified, as the last user left it.
  Lease lease() { return Lease(*this, take()); }

 private:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }

  std::mutex mutex_;  // guards idle_
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace tessera
