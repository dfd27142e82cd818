#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "device/cudnn_library_cuda.h"

namespace tessera {

/// A descriptor of cuDNN's backend API: attributes are set, then it is finalized and never changed.
class CudnnDescriptor {
 public:
  /// The library must outlive the descriptor. Throws Error if cuDNN does not know the type.
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  /// Sets an attribute to elements that cuDNN knows as `type`. Throws Error if cuDNN refuses it.
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<const T> elements) {
    set_elements(name, type, static_cast<int64_t>(elements.size()), elements.data());
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& element) {
    set_elements(name, type, 1, &element);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    set(name, CUDNN_TYPE_DATA_TYPE, type);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& descriptor) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptor.descriptor_);
  }

  /// Finalizes the descriptor. Throws Error if cuDNN refuses. `what` completes "cuDNN cannot ...".
  void finalize(const std::string& what);
  /// Finalizes the descriptor and returns cuDNN's status: whether it supports what was set.
  cudnnStatus_t try_finalize();

  /// Reads up to elements.size() elements of an attribute. Returns how many the attribute has.
  template <typename T>
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              std::span<T> elements) const {
    return get_elements(name, type, static_cast<int64_t>(elements.size()), elements.data());
  }
  /// Returns the number that is the only element of an attribute.
  int64_t get_number(cudnnBackendAttributeName_t name) const;

 private:
  void set_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void* elements);
  int64_t get_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t capacity, void* elements) const;

  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace tessera
