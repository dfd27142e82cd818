#include "checkpoint/hugging_face/copy_progress.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"

namespace tessera::hugging_face {

CopyProgress::CopyProgress(std::string verb, int64_t total_bytes, bool shown)
    : verb_(std::move(verb)), total_(total_bytes), shown_(shown) {}

void CopyProgress::add(int64_t bytes) {
  if (InterruptGuard::requested()) {
    throw Error("interrupted while {}; nothing was left behind", verb_);
  }
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  show(false);
}

void CopyProgress::finish() {
  const std::lock_guard lock(mutex_);
  show(true);
}

void CopyProgress::show(bool last) {
  if (!shown_) return;
  const double fraction =
      total_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(total_);
  const std::string detail =
      fmt::format("{}: {} of {}", verb_, format_bytes(done_), format_bytes(total_));
  progress_.show(Progress::bar(fraction, watch_.seconds(), detail), last);
}

}  // namespace tessera::hugging_face
