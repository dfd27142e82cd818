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

/// Shows the progress of long work in one line on standard error. On a terminal the line is redrawn
/// in place, at most ten times a second, and cut off where the terminal ends. Elsewhere, also on a
/// terminal that cannot draw over a line, a line is printed about every ten seconds, which keeps
/// logs short.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `text` now if the line is due. With `last`, shows it in any case, once, and ends the
  /// line.
  void show(std::string_view text, bool last = false);
  /// Makes "62% [=====   ] 3.1 of 5.0 M tokens, 1m15s left" from a fraction, the seconds spent so
  /// far and a detail.
  static std::string bar(double fraction, double seconds_spent, std::string_view detail);
  /// Removes a line drawn in place before other output follows.
  void clear();

 private:
  bool redraws_;
  bool drawn_ = false;
  std::string printed_;  ///< the line printed last; not used where lines are redrawn
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace tessera
