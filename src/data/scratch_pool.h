#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera {

/// A pool of scratch memory that an object's calls reuse. It grows to the largest number of threads
/// that have been in a call at the same time.
template <typename Scratch>
class ScratchPool {
 public:
  /// A Scratch that no other thread uses while the lease exists. The pool must outlive the lease.
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
    Scratch* operator->() const { return scratch_.get(); }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  /// Returns a lease of a Scratch, as its last user left it, or of a new one from `make`.
  template <typename Make>
  Lease lease(const Make& make) {
    std::unique_ptr<Scratch> scratch;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        scratch = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    return Lease(*this, scratch ? std::move(scratch) : make());
  }
  Lease lease() {
    return lease([] { return std::make_unique<Scratch>(); });
  }

 private:
  std::mutex mutex_;  // guards idle_
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace tessera
