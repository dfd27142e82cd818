#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/progress.h"

namespace tessera::hugging_face {

/// How far a copy of weights has come, on standard error; every thread may add to it.
class CopyProgress {
 public:
  /// `verb` is what the line begins with; `shown` false keeps it silent.
  CopyProgress(std::string verb, int64_t total_bytes, bool shown);

  /// Counts bytes that were copied. Throws Error once the user has interrupted the program.
  void add(int64_t bytes);
  /// Shows the end, when there is anything to show.
  void finish();

 private:
  void show(bool last);

  std::string verb_;
  int64_t total_;
  bool shown_;
  std::mutex mutex_;
  int64_t done_ = 0;
  Stopwatch watch_;
  Progress progress_;
};

}  // namespace tessera::hugging_face
