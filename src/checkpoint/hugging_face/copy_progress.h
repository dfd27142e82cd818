#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/progress.h"

namespace tessera::hugging_face {

/// Shows on standard error how many bytes of weights have been copied. Thread-safe.
class CopyProgress {
 public:
  /// `verb` is the first word of the progress line. Shows nothing if `shown` is false.
  CopyProgress(std::string verb, int64_t total_bytes, bool shown);

  /// Adds copied bytes. Throws Error once the user has interrupted the program.
  void add(int64_t bytes);
  /// Shows the final state.
  void finish();

 private:
  void show(bool last);  // under the lock of mutex_

  std::string verb_;
  int64_t total_;
  bool shown_;
  std::mutex mutex_;
  int64_t done_ = 0;
  Stopwatch watch_;
  Progress progress_;
};

}  // namespace tessera::hugging_face
