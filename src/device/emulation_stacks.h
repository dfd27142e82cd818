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

// The stacks of the emulated device's threads, which are fibers, and the calls that tell sanitizers
// of switches between them. Only emulation.cpp, which no thread sanitizer instruments, uses them.

namespace tessera::emulation {

inline constexpr int kMostThreads = 1024;  // the limit of a block
inline constexpr size_t kStackBytes = 256 * 1024;

/// The stacks of all threads of a block: a range of addresses. Only touched pages take memory.
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
    // Frames that were never left have poisoned the memory around their variables. The addresses
    // may be mapped again for other uses.
    __asan_unpoison_memory_region(memory_, kMostThreads * kStackBytes);
#endif
    ::munmap(memory_, kMostThreads * kStackBytes);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::byte* operator[](size_t thread) const { return memory_ + thread * kStackBytes; }

 private:
  std::byte* memory_;
};

/// The allocator of a fiber's stack. It frees nothing, because Stacks owns the memory.
struct StackOfOwner {
  static void deallocate(boost::context::stack_context&) {}
};

/// Tells the thread sanitizer that everything before a release() of an address comes before
/// everything after an acquire() of it.
inline void release([[maybe_unused]] void* address) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_release(address);
#endif
}
inline void acquire([[maybe_unused]] void* address) {
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_acquire(address);
#endif
}

/// A stack, as the sanitizers see it.
struct Stack {
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake = nullptr;    // the address sanitizer's fake stack
  void* thread = nullptr;  // the thread sanitizer's fiber
};

/// Tells the sanitizers that control goes from one stack to another. `ends` says that the fiber of
/// stack `from` ends, and never comes back.
inline void before_switch([[maybe_unused]] Stack& from, [[maybe_unused]] const Stack& to,
                          [[maybe_unused]] bool ends = false) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake, to.bottom, to.bytes);
#endif
#if defined(TESSERA_THREAD_SANITIZER)
  __tsan_switch_to_fiber(to.thread, __tsan_switch_to_fiber_no_sync);
#endif
}

/// Tells the sanitizers that control has come to stack `to`. Stores the bounds of `from` in it.
inline void after_switch([[maybe_unused]] Stack& to, [[maybe_unused]] Stack& from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(to.fake, &from.bottom, &from.bytes);
#endif
}

}  // namespace tessera::emulation
