#pragma once

#include "base/error.h"
#include "base/words.h"
#include "device/device.h"

namespace tessera {

/// A function of a vendor's runtime, with its name for errors:
///   GpuCall{"cudaMalloc", cudaMalloc}
template <typename Function>
struct GpuCall {
  const char* name;
  Function* function;
};
template <typename Function>
GpuCall(const char*, Function*) -> GpuCall<Function>;

/// Throws Error for a call that returned `code`. First clears the runtime's last error, if that is
/// possible, because other code asks for the last error after calls of its own.
template <typename Api>
[[noreturn]] void throw_gpu_error(const char* name, typename Api::Code code) {
  (void)Api::get_last_error();
  throw Error("{} failed on the device \"{}\": {} ({}): {}", name, word(Api::kDevice),
              Api::error_name(code), static_cast<int>(code), Api::error_text(code));
}

/// Calls a function of the runtime. Throws Error, with the function's name and the runtime's
/// message, if it fails. The call may also report the failure of work that the device got earlier.
template <typename Api, typename Function, typename... Arguments>
void call_gpu(const GpuCall<Function>& call, Arguments... arguments) {
  const typename Api::Code code = call.function(arguments...);
  if (code != Api::kSuccess) throw_gpu_error<Api>(call.name, code);
}

/// Returns whether the work before an event, or in a stream, is done. Throws Error if the query
/// fails. If it returns "not ready", the runtime keeps that as its last error, which is cleared.
template <typename Api, typename Function, typename Handle>
bool is_ready(const GpuCall<Function>& query, Handle handle) {
  const typename Api::Code code = query.function(handle);
  if (code == Api::kNotReady) (void)Api::get_last_error();
  if (code != Api::kSuccess && code != Api::kNotReady) throw_gpu_error<Api>(query.name, code);
  return code == Api::kSuccess;
}

}  // namespace tessera
