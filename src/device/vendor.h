#pragma once

#include <utility>

#include "device/stream.h"

namespace tessera {

/// Types that stand for the vendor that a kernel was compiled for. Functions that launch kernels
/// are templates over them:
///   template <typename Vendor, typename T>
///   void norm_device(const NormForward<T>& norm, Stream& stream);
/// A file of kernels defines the functions and instantiates them for ThisVendor (device/kernel.h).
template <int lanes>
struct Emulated {};
struct Cuda {};
struct Hip {};

/// Launches a kernel, given by its address in the host's program, in a stream of its vendor.
/// `arguments` are the addresses of its parameters' values. Throws Error if the device refuses it.
/// Each of the two exists only in builds with kernels of that vendor.
void launch_kernel(Cuda, const void* kernel, const Grid& grid, Stream& stream, void** arguments);
void launch_kernel(Hip, const void* kernel, const Grid& grid, Stream& stream, void** arguments);

/// Throws InternalError, which says that this program has no kernels for the device.
[[noreturn]] void throw_no_kernels(Device device);

/// Calls body(Vendor{}) with the vendor of a stream.
template <typename Body>
void for_vendor(const Stream& stream, Body&& body) {
  switch (stream.device()) {
    case Device::emulated:
      return stream.lanes() == 64 ? body(Emulated<64>{}) : body(Emulated<32>{});
#if defined(TESSERA_CUDA)
    case Device::cuda:
      return body(Cuda{});
#endif
#if defined(TESSERA_HIP)
    case Device::hip:
      return body(Hip{});
#endif
    default:
      throw_no_kernels(stream.device());
  }
}

}  // namespace tessera
