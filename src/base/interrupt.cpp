#include "base/interrupt.h"

#include <atomic>

#include "base/error.h"

namespace tessera {
namespace {

// A global, because a signal handler can reach nothing else, and lock-free, as handlers require.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int /*signal*/) { interrupted.store(true); }

/// Returns whether a signal only warns that the process will be ended. It may then come again.
bool is_warning(int signal) { return signal != SIGINT && signal != SIGTERM; }

struct sigaction reaction_to(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // system calls of the work go on after a signal
  // The system removes the handler when this signal comes. If the same signal comes again, it has
  // its default effect and ends the process. (The macro is unsigned.)
  if (!is_warning(signal)) action.sa_flags |= static_cast<int>(SA_RESETHAND);
  return action;
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted.store(false);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const int signal = kSignals[i];
    ::sigaction(signal, nullptr, &before_[i]);
    if (is_warning(signal) && is_ignored(before_[i])) continue;
    const struct sigaction reaction = reaction_to(signal);
    ::sigaction(signal, &reaction, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  interrupted.store(false);  // a signal concerned the guarded work only
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptGuard::requested() { return interrupted.load(); }

void require_no_interrupt() {
  if (InterruptGuard::requested()) throw Error("interrupted: nothing was reported or written");
}

}  // namespace tessera
