#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <sys/resource.h>

#include "base/error.h"

namespace tessera {

/// Returns the bytes of address space that this process uses.
inline int64_t used_addresses() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmSize:" && status >> kibibytes) return kibibytes * 1024;
  }
  throw Error("/proc/self/status has no line VmSize: N kB");
}

/// While it lives, this process may take `bytes` of addresses beside those that it has, as under
/// ulimit -v. The address sanitizer needs more of them than any limit leaves.
class AddressLimit {
 public:
#ifdef __SANITIZE_ADDRESS__
  static constexpr bool kWorks = false;
#else
  static constexpr bool kWorks = true;
#endif
  explicit AddressLimit(int64_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(used_addresses() + bytes);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tessera
