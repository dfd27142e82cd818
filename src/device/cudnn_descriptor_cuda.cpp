#include "device/cudnn_descriptor_cuda.h"

#include <fmt/core.h>

namespace tessera {

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  library.check(library.create_descriptor(type, &descriptor_),
                fmt::format("make a descriptor of type {}", static_cast<int>(type)));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) library_->destroy_descriptor(descriptor_);
}

void CudnnDescriptor::set_elements(cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void* elements) {
  library_->check(library_->set_attribute(descriptor_, name, type, count, elements),
                  fmt::format("set attribute {}", static_cast<int>(name)));
}

int64_t CudnnDescriptor::get_elements(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, int64_t capacity,
                                      void* elements) const {
  int64_t count = 0;
  library_->check(library_->get_attribute(descriptor_, name, type, capacity, &count, elements),
                  fmt::format("read attribute {}", static_cast<int>(name)));
  return count;
}

int64_t CudnnDescriptor::get_number(cudnnBackendAttributeName_t name) const {
  int64_t number = 0;
  get_elements(name, CUDNN_TYPE_INT64, 1, &number);
  return number;
}

void CudnnDescriptor::finalize(const std::string& what) { library_->check(try_finalize(), what); }

cudnnStatus_t CudnnDescriptor::try_finalize() { return library_->finalize(descriptor_); }

}  // namespace tessera
