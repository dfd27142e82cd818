#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tessera {

/// Seconds since construction.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// One line about long work on standard error. On a terminal the line is redrawn in place, at most
/// ten times a second; elsewhere a line is printed about every ten seconds, so that logs stay
/// short.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `text` now if the line is due; `last` shows it in any case, once, and ends the
  /// line.
  void show(std::string_view text, bool last = false);
  /// "62% [=====>   ] 3.1 of 5.0 M tokens, 1m15s left" from a fraction and the seconds spent so
  /// far.
  static std::string bar(double fraction, double seconds_spent, std::string_view detail);
  /// Removes a line drawn in place, so that other output can follow.
  void clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  std::string printed_;  ///< the line printed last; not used on a terminal
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace tessera
