#include "device/emulated_capture.h"

#include <utility>

#include "base/error.h"

namespace tessera {

void EmulatedCapture::note_unawaited(EmulatedStream& stream) {
  if (&stream != first_) unawaited_[&stream] = size();
}

void EmulatedCapture::add(EmulatedStream& stream, EmulatedWork&& work) {
  works_->push_back(std::move(work));
  note_unawaited(stream);
}

void EmulatedCapture::wait(EmulatedStream& stream, EmulatedStream& recording_stream,
                           size_t recorded_size) {
  streams_.insert(&stream);
  if (const auto found = unawaited_.find(&recording_stream);
      found != unawaited_.end() && found->second <= recorded_size) {
    unawaited_.erase(found);
  }
  note_unawaited(stream);
}

size_t EmulatedCapture::add_external(std::function<int64_t()>&& last_record) {
  externals_.push_back(std::move(last_record));
  return externals_.size() - 1;
}

void EmulatedCapture::refuse(std::string_view what) {
  valid_ = false;
  throw Error("a capture of the emulated device does not allow {}", what);
}

std::shared_ptr<const std::vector<EmulatedWork>> EmulatedCapture::end() {
  ended_ = true;
  if (!valid_) throw Error("the capture is invalid: a call that it does not allow was made in it");
  if (!unawaited_.empty()) {
    throw Error("the stream where the capture began did not wait for {} of its streams",
                unawaited_.size());
  }
  return works_;
}

}  // namespace tessera
