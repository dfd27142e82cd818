#pragma once

#include <sys/resource.h>

#include "base/process_memory.h"

namespace tessera {

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
    // A limit that none can reach says how much is in use.
    limit.rlim_cur = rlim_t{1} << 62;
    ::setrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur -= static_cast<rlim_t>(available_addresses());
    limit.rlim_cur += static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tessera
