#include "tensor/device.h"

#include "base/error.h"

namespace tessera {

std::string_view device_name(Device device) {
  switch (device) {
    case Device::cpu:
      return "cpu";
    case Device::emulated:
      return "emulated";
  }
  throw InternalError("unknown Device");
}

}  // namespace tessera
