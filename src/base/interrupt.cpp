#include "base/interrupt.h"

#include <atomic>
#include <csignal>

namespace tessera {
namespace {

// Signal handlers reach nothing but globals; this flag is the one exception to "no global state".
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  interrupted.store(true);
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted.store(false);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  interrupted.store(false);  // a signal was for the work that the guard stood around
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::requested() { return interrupted.load(); }

}  // namespace tessera
