#include "device/stream.h"

#include "base/error.h"

namespace tessera {

void Stream::emulate(const Grid&, std::function<void()>&&) {
  throw InternalError("a kernel of the emulated device for a stream of another");
}

void Stream::enqueue(std::function<void()>&&) {
  throw InternalError("work of the emulated device for a stream of another");
}

}  // namespace tessera
