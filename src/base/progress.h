#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tessera {

/// A clock that starts when it is constructed.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The progress of long work, shown in one line on standard error. On a terminal the line is drawn
/// over, at most ten times a second, and cut off at the terminal's width. Elsewhere, also on a
/// terminal that cannot draw over a line, a line is printed about every ten seconds, which keeps
/// logs short.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `text` if the time for a new line has come. If `last` is true, shows `text` in any case
  /// (but not twice) and ends the line.
  void show(std::string_view text, bool last = false);
  /// Returns "62% [=====   ] 3.1 of 5.0 M tokens, 1m15s left" for a fraction, the seconds spent so
  /// far and a detail.
  static std::string bar(double fraction, double seconds_spent, std::string_view detail);
  /// Removes a line that could be drawn over, before other output follows.
  void clear();

 private:
  bool can_redraw_;
  bool drawn_ = false;        // a line stands on the terminal that can be drawn over
  std::string last_printed_;  // not used where lines are redrawn
  std::chrono::steady_clock::time_point next_line_time_{};
};

}  // namespace tessera
