#include "device/stream.h"

#include "base/error.h"
#include "base/words.h"
#include "device/vendor.h"

namespace tessera {

void Stream::emulate(const Grid&, std::function<void()>&&) {
  throw InternalError("a stream of another device was given a kernel of the emulated device");
}

void Stream::enqueue(std::function<void()>&&) {
  throw InternalError("a stream of another device was given work of the emulated device");
}

void throw_no_kernels(Device device) {
  throw InternalError(fmt::format("this program has no kernels for the device {}", word(device)));
}

}  // namespace tessera
