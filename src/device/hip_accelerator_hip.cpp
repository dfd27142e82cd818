#include <algorithm>
#include <vector>

#include <hip/hip_runtime_api.h>

#include "base/text.h"
#include "device/gpu_accelerator.h"
#include "device/open_gpu.h"
#include "device/vendor.h"

namespace tessera {
namespace {

/// HIP's runtime: the `Api` of the templates in device/gpu_*.h. CudaApi has the same members. HIP
/// overloads hipMalloc and hipHostMalloc, so the types Allocate and AllocateHost choose a function.
struct HipApi {
  static constexpr Device kDevice = Device::hip;
  static constexpr const char* kVisibleDevices = "HIP_VISIBLE_DEVICES";
  static constexpr const char* kDeviceListCommand = "rocm-smi";

  using Code = hipError_t;
  using Stream = hipStream_t;
  using Event = hipEvent_t;
  using Graph = hipGraph_t;
  using GraphExec = hipGraphExec_t;
  using Properties = hipDeviceProp_t;
  using Dim3 = dim3;

  static constexpr Code kSuccess = hipSuccess;
  static constexpr Code kNotReady = hipErrorNotReady;
  static constexpr Code kNoDevice = hipErrorNoDevice;
  static constexpr Code kOutOfMemory = hipErrorOutOfMemory;
  static constexpr unsigned kNonBlocking = hipStreamNonBlocking;
  static constexpr hipMemcpyKind kCopyDefault = hipMemcpyDefault;
  static constexpr hipStreamCaptureMode kCaptureThreadLocal = hipStreamCaptureModeThreadLocal;
  static constexpr hipFuncAttribute kSharedBytesAttribute =
      hipFuncAttributeMaxDynamicSharedMemorySize;

  using Allocate = hipError_t(void**, size_t);
  using AllocateHost = hipError_t(void**, size_t, unsigned);

  static constexpr GpuCall get_device_count{"hipGetDeviceCount", hipGetDeviceCount};
  static constexpr GpuCall get_properties{"hipGetDeviceProperties", hipGetDeviceProperties};
  static constexpr GpuCall set_device{"hipSetDevice", hipSetDevice};
  static constexpr GpuCall device_synchronize{"hipDeviceSynchronize", hipDeviceSynchronize};
  static constexpr GpuCall memory_info{"hipMemGetInfo", hipMemGetInfo};
  static constexpr GpuCall<Allocate> allocate{"hipMalloc", hipMalloc};
  static constexpr GpuCall free{"hipFree", hipFree};
  static constexpr GpuCall<AllocateHost> allocate_host{"hipHostMalloc", hipHostMalloc};
  static constexpr GpuCall free_host{"hipHostFree", hipHostFree};
  static constexpr GpuCall memset{"hipMemset", hipMemset};
  static constexpr GpuCall memcpy{"hipMemcpy", hipMemcpy};
  static constexpr GpuCall memset_async{"hipMemsetAsync", hipMemsetAsync};
  static constexpr GpuCall memcpy_async{"hipMemcpyAsync", hipMemcpyAsync};
  static constexpr GpuCall stream_priority_range{"hipDeviceGetStreamPriorityRange",
                                                 hipDeviceGetStreamPriorityRange};
  static constexpr GpuCall stream_create{"hipStreamCreateWithPriority",
                                         hipStreamCreateWithPriority};
  static constexpr GpuCall stream_destroy{"hipStreamDestroy", hipStreamDestroy};
  static constexpr GpuCall stream_synchronize{"hipStreamSynchronize", hipStreamSynchronize};
  static constexpr GpuCall stream_query{"hipStreamQuery", hipStreamQuery};
  static constexpr GpuCall stream_wait_event{"hipStreamWaitEvent", hipStreamWaitEvent};
  static constexpr GpuCall stream_begin_capture{"hipStreamBeginCapture", hipStreamBeginCapture};
  static constexpr GpuCall stream_end_capture{"hipStreamEndCapture", hipStreamEndCapture};
  static constexpr GpuCall event_create{"hipEventCreateWithFlags", hipEventCreateWithFlags};
  static constexpr GpuCall event_destroy{"hipEventDestroy", hipEventDestroy};
  static constexpr GpuCall event_record{"hipEventRecord", hipEventRecord};
  static constexpr GpuCall event_query{"hipEventQuery", hipEventQuery};
  static constexpr GpuCall event_synchronize{"hipEventSynchronize", hipEventSynchronize};
  static constexpr GpuCall event_elapsed_time{"hipEventElapsedTime", hipEventElapsedTime};
  static constexpr GpuCall graph_instantiate{"hipGraphInstantiateWithFlags",
                                             hipGraphInstantiateWithFlags};
  static constexpr GpuCall graph_destroy{"hipGraphDestroy", hipGraphDestroy};
  static constexpr GpuCall graph_exec_destroy{"hipGraphExecDestroy", hipGraphExecDestroy};
  static constexpr GpuCall graph_launch{"hipGraphLaunch", hipGraphLaunch};
  static constexpr GpuCall set_attribute{"hipFuncSetAttribute", hipFuncSetAttribute};
  static constexpr GpuCall launch_kernel{"hipLaunchKernel", hipLaunchKernel};

  static Code get_last_error() { return hipGetLastError(); }
  static const char* error_name(Code code) { return hipGetErrorName(code); }
  static const char* error_text(Code code) { return hipGetErrorString(code); }
  static const char* kernel_name(const void* kernel, Stream stream) {
    const char* const name = hipKernelNameRefByPtr(kernel, stream);
    return name == nullptr ? "(unnamed)" : name;
  }

  static std::string architecture(const Properties& properties) {
    const std::string full = properties.gcnArchName;  // gfx90a:sramecc+:xnack-
    return full.substr(0, full.find(':'));
  }
  /// Does nothing: HIP reports a problem of the driver when it counts devices.
  static void check_driver() {}
  /// Throws Error if this build has no kernels for the device.
  static void check_device(const Properties& properties) {
    const std::vector<std::string> built{TESSERA_HIP_ARCHITECTURES};
    const std::string name = architecture(properties);
    if (std::ranges::find(built, name) == built.end()) {
      throw Error(
          "the GPU {} is a {}; this build has kernels for {}: build with "
          "-DTESSERA_HIP_ARCHITECTURES={}",
          properties.name, name, join(built, ", "), name);
    }
    // Kernels for AMD are compiled for warps of 64 threads (device/kernel.h).
    if (properties.warpSize != 64) {
      throw Error("the GPU {} has warps of {} threads; the device \"hip\" needs 64 (CDNA)",
                  properties.name, properties.warpSize);
    }
  }
};

}  // namespace

std::unique_ptr<Accelerator> open_hip(const LocalRank& rank) { return open_gpu<HipApi>(rank); }

void launch_kernel(Hip, const void* kernel, const Grid& grid, Stream& stream, void** arguments) {
  launch_on_gpu<HipApi>(kernel, grid, stream, arguments);
}

}  // namespace tessera
