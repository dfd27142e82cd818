#include "device/stream.h"

#include "base/error.h"
#include "base/words.h"
#include "device/vendor.h"

namespace tessera {

void Stream::emulate(const Grid&, std::function<void()>&&) {
  throw InternalError("a kernel of the emulated device for a stream of another");
}

void Stream::enqueue(std::function<void()>&&) {
  throw InternalError("work of the emulated device for a stream of another");
}

void throw_no_kernels(Device device) {
  throw InternalError(fmt::format("a stream of a device without kernels: {}", word(device)));
}

}  // namespace tessera
