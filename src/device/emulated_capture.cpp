#include "device/emulated_capture.h"

#include <utility>

#include "base/error.h"

namespace tessera {

void EmulatedCapture::open(EmulatedStream& stream) {
  if (&stream != first_) open_[&stream] = size();
}

void EmulatedCapture::add(EmulatedStream& stream, EmulatedWork&& work) {
  works_->push_back(std::move(work));
  open(stream);
}

void EmulatedCapture::wait(EmulatedStream& stream, EmulatedStream& of, size_t size) {
  streams_.insert(&stream);
  if (const auto found = open_.find(&of); found != open_.end() && found->second <= size) {
    open_.erase(found);
  }
  open(stream);
}

void EmulatedCapture::refuse(std::string_view what) {
  valid_ = false;
  throw Error("a capture of the emulated device does not allow {}", what);
}

std::shared_ptr<const std::vector<EmulatedWork>> EmulatedCapture::end() {
  ended_ = true;
  if (!valid_) throw Error("the capture is invalid: a call that it does not allow was made in it");
  if (!open_.empty()) {
    throw Error("the stream where the capture began did not wait for {} of its streams",
                open_.size());
  }
  return works_;
}

}  // namespace tessera
