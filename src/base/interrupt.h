#pragma once

#include <array>
#include <csignal>

namespace tessera {

/// Stands around long work that is to end in order. While one exists, Ctrl-C (SIGINT), SIGTERM and
/// SIGHUP set a flag instead of ending the process. A second Ctrl-C or SIGTERM ends it at once; a
/// second SIGHUP does not, as a terminal that closes may send several. SIGHUP stays ignored where
/// the process was started so (nohup). What was before comes back with the guard's end. Signals
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

}  // namespace tessera
