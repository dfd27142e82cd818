#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// A vendor's library that is loaded when a device first needs it, so that the program starts
/// without it. It stays loaded.
class SharedLibrary {
 public:
  /// Loads the first of `names` that the system finds: {"libcublasLt.so.13", "libcublasLt.so"}.
  /// `purpose` says in errors what it is for: "matrix products on the device cuda". Throws Error
  /// with the system's message about each name if no name is found.
  SharedLibrary(std::span<const char* const> names, std::string_view purpose);

  const std::string& name() const { return name_; }

  /// Returns a function by its name and type: function<decltype(cublasLtCreate)>("cublasLtCreate").
  /// Throws Error, which asks for a newer library, if there is no such function.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }
  /// Returns whether the library has a function of that name.
  bool has(const char* name) const;

 private:
  void* find(const char* name) const;

  std::string name_;
  std::string purpose_;
  void* handle_ = nullptr;
};

}  // namespace tessera
