#include "base/interrupt.h"

#include <atomic>

#include "base/error.h"

namespace tessera {
namespace {

// Signal handlers can reach only globals. This flag is the one exception to "no global state".
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int /*signal*/) { interrupted.store(true); }

/// Returns whether a signal only warns that the process will be ended, and may come again before
/// that.
bool is_warning(int signal) { return signal != SIGINT && signal != SIGTERM; }

struct sigaction reaction_to(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  // Only the first signal sets the flag. The next one has its default effect.
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
