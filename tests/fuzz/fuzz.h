#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_root.h"

// What the fuzz targets share. A target defines LLVMFuzzerTestOneInput, which libFuzzer calls with
// bytes of its own making, and ends without crash, sanitizer report or any exception but
// tessera::Error. scripts/fuzz builds and runs them.

namespace tessera::fuzz {

/// Bytes as a file without a place on any disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", 0)) {
    TESSERA_CHECK(descriptor_ >= 0, "memfd_create failed");
    TESSERA_CHECK(
        ::write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
        "a write to memory failed");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  fs::path path() const { return fs::path("/proc/self/fd") / std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// A folder of files, below temporary_root(), gone with the object.
class MemoryFolder {
 public:
  MemoryFolder() : path_(temporary_root() / ("tessera-fuzz-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~MemoryFolder() { fs::remove_all(path_); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void write(const char* name, std::string_view bytes) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TESSERA_CHECK(file.good(), "the input cannot be written");
  }

 private:
  fs::path path_;
};

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `action`, in which an Error is a right answer.
template <typename Action>
void expect_result_or_error(Action&& action) {
  try {
    action();
  } catch (const Error&) {
  }
}

}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
