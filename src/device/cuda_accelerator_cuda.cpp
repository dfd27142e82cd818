#include <cuda_runtime_api.h>

#include "device/gpu_accelerator.h"
#include "device/open_gpu.h"
#include "device/vendor.h"

namespace tessera {
namespace {

/// CUDA's runtime: the `Api` of the templates in device/gpu_*.h. HipApi has the same members.
struct CudaApi {
  static constexpr Device kDevice = Device::cuda;
  static constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
  static constexpr const char* kDeviceListCommand = "nvidia-smi";

  using Code = cudaError_t;
  using Stream = cudaStream_t;
  using Event = cudaEvent_t;
  using Graph = cudaGraph_t;
  using GraphExec = cudaGraphExec_t;
  using Properties = cudaDeviceProp;
  using Dim3 = dim3;

  static constexpr Code kSuccess = cudaSuccess;
  static constexpr Code kNotReady = cudaErrorNotReady;
  static constexpr Code kNoDevice = cudaErrorNoDevice;
  static constexpr Code kOutOfMemory = cudaErrorMemoryAllocation;
  static constexpr unsigned kNonBlocking = cudaStreamNonBlocking;
  static constexpr cudaMemcpyKind kCopyDefault = cudaMemcpyDefault;
  static constexpr cudaStreamCaptureMode kCaptureThreadLocal = cudaStreamCaptureModeThreadLocal;
  static constexpr cudaFuncAttribute kSharedBytesAttribute =
      cudaFuncAttributeMaxDynamicSharedMemorySize;

  static constexpr GpuCall get_device_count{"cudaGetDeviceCount", cudaGetDeviceCount};
  static constexpr GpuCall get_properties{"cudaGetDeviceProperties", cudaGetDeviceProperties};
  static constexpr GpuCall set_device{"cudaSetDevice", cudaSetDevice};
  static constexpr GpuCall device_synchronize{"cudaDeviceSynchronize", cudaDeviceSynchronize};
  static constexpr GpuCall memory_info{"cudaMemGetInfo", cudaMemGetInfo};
  static constexpr GpuCall allocate{"cudaMalloc", cudaMalloc};
  static constexpr GpuCall free{"cudaFree", cudaFree};
  static constexpr GpuCall allocate_host{"cudaHostAlloc", cudaHostAlloc};
  static constexpr GpuCall free_host{"cudaFreeHost", cudaFreeHost};
  static constexpr GpuCall memset{"cudaMemset", cudaMemset};
  static constexpr GpuCall memcpy{"cudaMemcpy", cudaMemcpy};
  static constexpr GpuCall memset_async{"cudaMemsetAsync", cudaMemsetAsync};
  static constexpr GpuCall memcpy_async{"cudaMemcpyAsync", cudaMemcpyAsync};
  static constexpr GpuCall stream_priority_range{"cudaDeviceGetStreamPriorityRange",
                                                 cudaDeviceGetStreamPriorityRange};
  static constexpr GpuCall stream_create{"cudaStreamCreateWithPriority",
                                         cudaStreamCreateWithPriority};
  static constexpr GpuCall stream_destroy{"cudaStreamDestroy", cudaStreamDestroy};
  static constexpr GpuCall stream_synchronize{"cudaStreamSynchronize", cudaStreamSynchronize};
  static constexpr GpuCall stream_query{"cudaStreamQuery", cudaStreamQuery};
  static constexpr GpuCall stream_wait_event{"cudaStreamWaitEvent", cudaStreamWaitEvent};
  static constexpr GpuCall stream_begin_capture{"cudaStreamBeginCapture", cudaStreamBeginCapture};
  static constexpr GpuCall stream_end_capture{"cudaStreamEndCapture", cudaStreamEndCapture};
  static constexpr GpuCall event_create{"cudaEventCreateWithFlags", cudaEventCreateWithFlags};
  static constexpr GpuCall event_destroy{"cudaEventDestroy", cudaEventDestroy};
  static constexpr GpuCall event_record{"cudaEventRecord", cudaEventRecord};
  static constexpr GpuCall event_query{"cudaEventQuery", cudaEventQuery};
  static constexpr GpuCall event_synchronize{"cudaEventSynchronize", cudaEventSynchronize};
  static constexpr GpuCall event_elapsed_time{"cudaEventElapsedTime", cudaEventElapsedTime};
  static constexpr GpuCall graph_instantiate{"cudaGraphInstantiateWithFlags",
                                             cudaGraphInstantiateWithFlags};
  static constexpr GpuCall graph_destroy{"cudaGraphDestroy", cudaGraphDestroy};
  static constexpr GpuCall graph_exec_destroy{"cudaGraphExecDestroy", cudaGraphExecDestroy};
  static constexpr GpuCall graph_launch{"cudaGraphLaunch", cudaGraphLaunch};
  static constexpr GpuCall set_attribute{"cudaFuncSetAttribute", cudaFuncSetAttribute};
  static constexpr GpuCall launch_kernel{"cudaLaunchKernel", cudaLaunchKernel};

  static Code get_last_error() { return cudaGetLastError(); }
  static const char* error_name(Code code) { return cudaGetErrorName(code); }
  static const char* error_text(Code code) { return cudaGetErrorString(code); }
  static const char* kernel_name(const void* kernel, Stream /*stream*/) {
    const char* name = nullptr;
    return cudaFuncGetName(&name, kernel) == cudaSuccess && name != nullptr ? name : "(unnamed)";
  }

  /// Throws Error if there is no driver, or if it is too old for this runtime.
  static void check_driver() {
    int driver = 0;
    call_gpu<CudaApi>(GpuCall{"cudaDriverGetVersion", cudaDriverGetVersion}, &driver);
    constexpr int kMajor = CUDART_VERSION / 1000;
    if (driver == 0) {
      throw Error(
          "the device \"cuda\" needs NVIDIA's driver, and there is none here (libcuda.so.1 cannot "
          "be loaded): install one that supports CUDA {}",
          kMajor);
    }
    if (driver / 1000 < kMajor) {
      throw Error(
          "the device \"cuda\" needs a driver that supports CUDA {}; the one here supports up to "
          "CUDA {}.{}: update it",
          kMajor, driver / 1000, driver % 1000 / 10);
    }
  }
  static std::string architecture(const Properties& properties) {
    return fmt::format("sm_{}{}", properties.major, properties.minor);
  }
  /// Throws Error if the device is too old for our kernels.
  static void check_device(const Properties& properties) {
    if (properties.major < 8) {
      throw Error(
          "the GPU {} has compute capability {}.{}; the device \"cuda\" needs 8.0 (Ampere) or "
          "newer",
          properties.name, properties.major, properties.minor);
    }
  }
};

}  // namespace

std::unique_ptr<Accelerator> open_cuda(const LocalRank& rank) { return open_gpu<CudaApi>(rank); }

void launch_kernel(Cuda, const void* kernel, const Grid& grid, Stream& stream, void** arguments) {
  launch_on_gpu<CudaApi>(kernel, grid, stream, arguments);
}

}  // namespace tessera
