#include "device/accelerator.h"

#include "base/error.h"
#include "base/words.h"
#include "device/emulated_accelerator.h"

namespace tessera {

std::unique_ptr<Accelerator> open_accelerator(Device device) {
  switch (device) {
    case Device::emulated:
      return open_emulated();
    case Device::cuda:
    case Device::hip:
      throw Error(
          "this build of tessera has no kernels for the device \"{}\"; it knows \"cpu\" and "
          "\"emulated\"",
          word(device));
    case Device::cpu:
      break;
  }
  throw InternalError("the processor is no accelerator");
}

}  // namespace tessera
