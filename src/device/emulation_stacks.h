#pragma once

#include <cstddef>

#include <boost/context/stack_context.hpp>
#include <sys/mman.h>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TESSERA_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

// The stacks of the emulated device's threads, and what the sanitizers must be told of them. For
// emulation.cpp alone, which the thread sanitizer does not instrument.

namespace tessera::emulation {

inline constexpr int kMostThreads = 1024;  // of a block
inline constexpr size_t kStackBytes = 256 * 1024;

/// The stacks of all threads of a block: addresses of which only the pages that are touched take
/// memory.
class Stacks {
 public:
  Stacks()
      : memory_(static_cast<std::byte*>(
            ::mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (memory_ == MAP_FAILED) throw Error("no addresses for the stacks of an emulated device");
  }
  ~Stacks() {
#if defined(__SANITIZE_ADDRESS__)
    // Frames that were never left have marked their surroundings. Others may get the addresses.
    __asan_unpoison_memory_region(memory_, kMostThreads * kStackBytes);
#endif
    ::munmap(memory_, kMostThreads * kStackBytes);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::byte* operator[](size_t number) const { return memory_ + number * kStackBytes; }

 private:
  std::byte* memory_;
};

/// Gives a fiber's stack back to no one: Stacks keeps it.
struct KeptStack {
  static void deallocate(boost::context::stack_context&) {}
};

/// Tells the thread sanitizer that everything before a release() of a place comes before everything
/// after an acquire() of it.
inline void release([[maybe_unused]] void* place) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_release(place);
#endif
}
inline void acquire([[maybe_unused]] void* place) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_acquire(place);
#endif
}

/// A stack as the sanitizers know it.
struct Stack {
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake = nullptr;    // of the address sanitizer
  void* thread = nullptr;  // of the thread sanitizer
};

/// Tells the sanitizers that control goes from one stack to another. The first one ends if `last`.
inline void before_switch([[maybe_unused]] Stack& from, [[maybe_unused]] const Stack& to,
                          [[maybe_unused]] bool last = false) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.bottom, to.bytes);
#endif
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_switch_to_fiber(to.thread, __tsan_switch_to_fiber_no_sync);
#endif
}

/// Tells them that control has come to a stack from another, whose place is kept.
inline void after_switch([[maybe_unused]] Stack& to, [[maybe_unused]] Stack& from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(to.fake, &from.bottom, &from.bytes);
#endif
}

}  // namespace tessera::emulation
