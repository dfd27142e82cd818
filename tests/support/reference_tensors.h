#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera::testing {

/// The expected tensors of a fixture, which a script of tests/reference made: its
/// expected.safetensors.
class ReferenceTensors {
 public:
  /// `folder` is below tests/fixtures.
  explicit ReferenceTensors(const fs::path& folder)
      : file_(path(folder) / "expected.safetensors") {}

  static fs::path path(const fs::path& folder) {
    return fs::path(TESSERA_SOURCE) / "tests" / "fixtures" / folder;
  }

  std::vector<float> f32(const std::string& name) const { return read<float>(name, "F32"); }
  std::vector<double> f64(const std::string& name) const { return read<double>(name, "F64"); }
  std::vector<int32_t> i32(const std::string& name) const { return read<int32_t>(name, "I32"); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const SafetensorsEntry& entry : file_.entries()) names.push_back(entry.name);
    return names;
  }
  std::vector<int64_t> shape(const std::string& name) const { return find(name, "").shape; }

 private:
  const SafetensorsEntry& find(const std::string& name, const std::string& dtype) const {
    const SafetensorsEntry* entry = file_.find(name);
    TESSERA_CHECK(entry != nullptr && (dtype.empty() || entry->dtype == dtype),
                  "{} has no {} tensor {}", file_.path().string(), dtype, name);
    return *entry;
  }

  template <typename T>
  std::vector<T> read(const std::string& name, const std::string& dtype) const {
    const SafetensorsEntry& entry = find(name, dtype);
    std::vector<T> values(static_cast<size_t>(entry.bytes()) / sizeof(T));
    file_.read(entry, 0, std::as_writable_bytes(std::span<T>(values)));
    return values;
  }

  SafetensorsReader file_;
};

}  // namespace tessera::testing
