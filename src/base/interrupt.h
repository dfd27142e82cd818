#pragma once

namespace tessera {

/// While one exists, Ctrl-C and SIGTERM set a flag instead of ending the process; a second signal
/// ends it at once. Signals belong to the process, so at most one guard exists at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once a signal has come.
  static bool requested();
};

}  // namespace tessera
