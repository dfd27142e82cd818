#include "device/shared_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace tessera {

SharedLibrary::SharedLibrary(std::span<const char* const> names, std::string_view purpose)
    : purpose_(purpose) {
  std::string failures;
  for (const char* const name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      return;
    }
    const char* const why = ::dlerror();
    failures += fmt::format("{}{}", failures.empty() ? "" : "; ", why == nullptr ? name : why);
  }
  throw Error("cannot load a library for {}: {}. Install it, or name its folder in LD_LIBRARY_PATH",
              purpose_, failures);
}

bool SharedLibrary::has(const char* name) const { return ::dlsym(handle_, name) != nullptr; }

void* SharedLibrary::find(const char* name) const {
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) {
    throw Error("{} has no function {}, which {} takes: install a newer one", name_, name,
                purpose_);
  }
  return found;
}

}  // namespace tessera
