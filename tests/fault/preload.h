#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

/// While it lives, programs that are started get the library of faults, armed so: "KIND:N:FOLDER".
class PreloadedFault {
 public:
  explicit PreloadedFault(const std::string& fault, const std::string& seen = "") {
    set("LD_PRELOAD", TESSERA_FAULT_LIBRARY);
    set("TESSERA_FAULT", fault);
    if (!seen.empty()) set("TESSERA_FAULT_SEEN", seen);
    // A program under AddressSanitizer wants the sanitizer's own library to come first.
    const char* options = std::getenv("ASAN_OPTIONS");
    set("ASAN_OPTIONS",
        (options == nullptr ? "" : std::string(options) + ":") + "verify_asan_link_order=0");
  }
  ~PreloadedFault() {
    for (const auto& [name, before] : before_) {
      if (before) {
        ::setenv(name.c_str(), before->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  PreloadedFault(const PreloadedFault&) = delete;
  PreloadedFault& operator=(const PreloadedFault&) = delete;

 private:
  void set(const std::string& name, const std::string& value) {
    const char* before = std::getenv(name.c_str());
    before_.emplace_back(name,
                         before == nullptr ? std::nullopt : std::optional<std::string>(before));
    ::setenv(name.c_str(), value.c_str(), 1);
  }

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace tessera::testing
