#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/text.h"

namespace tessera::hugging_face {

/// Shows on standard error how many bytes of weights have been copied. Thread-safe.
class CopyProgress {
 public:
  /// `verb` is the first word of the progress line. Shows nothing if `shown` is false.
  CopyProgress(std::string verb, int64_t total_bytes, bool shown)
      : verb_(std::move(verb)), total_(total_bytes), is_shown_(shown) {}

  /// Adds copied bytes. Throws Error once the user has interrupted the program.
  void add(int64_t bytes) {
    if (InterruptGuard::requested()) {
      throw Error("interrupted while {}; nothing was left behind", verb_);
    }
    show(bytes, false);
  }
  /// Shows the final state.
  void finish() { show(0, true); }

 private:
  void show(int64_t more_bytes, bool last) {
    const std::lock_guard lock(mutex_);
    copied_ += more_bytes;
    if (!is_shown_) return;
    const double fraction =
        total_ == 0 ? 1 : static_cast<double>(copied_) / static_cast<double>(total_);
    const std::string detail =
        fmt::format("{}: {} of {}", verb_, format_bytes(copied_), format_bytes(total_));
    progress_.show(Progress::bar(fraction, watch_.seconds(), detail), last);
  }

  std::string verb_;
  int64_t total_;
  bool is_shown_;
  std::mutex mutex_;
  int64_t copied_ = 0;
  Stopwatch watch_;
  Progress progress_;
};

}  // namespace tessera::hugging_face
