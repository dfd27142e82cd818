#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/device_transport.h"
#include "device/emulated_accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// A rank's emulated device, with memory for the operands of a call.
class RankDevice {
 public:
  explicit RankDevice(int lanes) : accelerator_(open_emulated(lanes)) {
    stream_ = accelerator_->make_stream();
  }

  Accelerator& accelerator() { return *accelerator_; }
  Stream& stream() { return *stream_; }

  /// A copy of a tensor in the device's memory, `before` bytes behind the memory's beginning.
  Tensor copy(const Tensor& host, int64_t before = 0) {
    memory_.push_back(accelerator_->allocate(host.bytes() + before));
    const Tensor tensor = Tensor::wrap(static_cast<std::byte*>(memory_.back()->address()) + before,
                                       host.shape(), host.dtype(), accelerator_.get());
    upload({host.raw(), static_cast<size_t>(host.bytes())}, tensor);
    return tensor;
  }
  DeviceCall call(int64_t workspace_bytes) {
    memory_.push_back(accelerator_->allocate(workspace_bytes));
    return {.stream = stream_.get(),
            .workspace = {static_cast<std::byte*>(memory_.back()->address()),
                          static_cast<size_t>(workspace_bytes)}};
  }

 private:
  std::unique_ptr<Accelerator> accelerator_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::shared_ptr<Stream> stream_;  // last: its destructor waits for work that uses the memory
};

}  // namespace tessera
