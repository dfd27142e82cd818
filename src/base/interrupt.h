#pragma once

#include <array>
#include <csignal>

namespace tessera {

/// A guard that lets long work end in an orderly way. While it exists, signals that ask for the end
/// set a flag instead of ending the process.
///
/// Ctrl-C (SIGINT) or SIGTERM ends the process at once when the same signal comes a second time.
/// The other signals are warnings and may come again: a closing terminal sends SIGHUP, schedulers
/// send SIGUSR1 or SIGUSR2 before they kill, and the system sends SIGXCPU every second beyond the
/// soft limit of processor time. A warning that was ignored before (nohup) stays so.
///
/// The destructor restores the previous signal handlers. Signals belong to the process, so at most
/// one guard exists at a time. Where kernels of libraries may run, a SignalThread must exist too.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Returns true once a signal has come.
  static bool requested();

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// Throws Error if an InterruptGuard has caught a signal. Call it between measurements that are
/// reported only when all of them are done.
void require_no_interrupt();

}  // namespace tessera
