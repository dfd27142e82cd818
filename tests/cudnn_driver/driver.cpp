// Stands for NVIDIA's driver, libcuda.so.1, on a machine that has none, so that cuDNN can make
// plans for a described device. Kernels seem to load. Everything else fails: there is no device.
// cuDNN looks these functions up by name and refuses to plan without one of them.

#include <cstdint>

#include <dlfcn.h>

namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND
int something;                  // what handles point to

int give(void** handle) {
  *handle = &something;
  return 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, void*) {
  *function = dlsym(RTLD_DEFAULT, name);
  return *function == nullptr ? kNotFound : 0;
}

int cuModuleLoadData(void** module) { return give(module); }
int cuModuleLoadDataEx(void** module) { return give(module); }
int cuModuleGetFunction(void** function) { return give(function); }
int cuModuleUnload() { return 0; }
int cuLibraryLoadData(void** library) { return give(library); }
int cuLibraryGetKernel(void** kernel) { return give(kernel); }
int cuLibraryGetModule(void** module) { return give(module); }
int cuLibraryUnload() { return 0; }
int cuFuncGetAttribute() { return 0; }
int cuFuncSetAttribute() { return 0; }

int cuCtxGetCurrent() { return kNoDevice; }
int cuCtxGetLimit() { return kNoDevice; }
int cuCtxPopCurrent() { return kNoDevice; }
int cuCtxPushCurrent() { return kNoDevice; }
int cuDeviceGet() { return kNoDevice; }
int cuDeviceGetAttribute() { return kNoDevice; }
int cuDeviceGetCount() { return kNoDevice; }
int cuGetErrorName() { return kNoDevice; }
int cuGetErrorString() { return kNoDevice; }
int cuInit() { return kNoDevice; }
int cuKernelGetAttribute() { return kNoDevice; }
int cuKernelSetAttribute() { return kNoDevice; }
int cuLaunchCooperativeKernel() { return kNoDevice; }
int cuLaunchKernel() { return kNoDevice; }
int cuLaunchKernelEx() { return kNoDevice; }
int cuLibraryLoadFromFile() { return kNoDevice; }
int cuLinkAddData() { return kNoDevice; }
int cuLinkComplete() { return kNoDevice; }
int cuLinkCreate() { return kNoDevice; }
int cuLinkDestroy() { return kNoDevice; }
int cuOccupancyMaxPotentialClusterSize() { return kNoDevice; }
int cuStreamGetCtx() { return kNoDevice; }
}
// NOLINTEND(readability-identifier-naming)
