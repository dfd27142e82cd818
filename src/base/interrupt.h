#pragma once

#include <array>
#include <csignal>

namespace tessera {

/// Lets long work end in an orderly way. While a guard exists, Ctrl-C (SIGINT), SIGTERM and SIGHUP
/// set a flag instead of ending the process. A second Ctrl-C or a second SIGTERM ends it at once. A
/// second SIGHUP does not, because a closing terminal may send several. SIGHUP stays ignored if the
/// process was started that way (nohup). The destructor restores the previous reactions. Signals
/// belong to the process, so at most one guard exists at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once a signal has come.
  static bool requested();

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// Throws Error if an InterruptGuard has caught a signal. Call it between measurements that are
/// reported only when all of them are done.
void require_no_interrupt();

}  // namespace tessera
