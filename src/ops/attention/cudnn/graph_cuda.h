#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

#include "device/cudnn_descriptor_cuda.h"

namespace tessera {

/// The layout of a tensor [batch, heads, rows, columns] in memory. Strides are in elements.
struct CudnnLayout {
  std::array<int64_t, 4> dims;
  std::array<int64_t, 4> strides;

  /// Returns the layout of the same elements with rows and columns exchanged.
  CudnnLayout transposed() const {
    return {{dims[0], dims[1], dims[3], dims[2]}, {strides[0], strides[1], strides[3], strides[2]}};
  }
};

/// Returns the row-major layout without gaps.
constexpr CudnnLayout packed_layout(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return {{batch, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

/// The type that an operation computes in, and the type of its result.
struct CudnnTypes {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnDataType_t result = CUDNN_DATA_FLOAT;
};

/// A graph of cuDNN's operations, and its writer. It keeps all descriptors, which must live as long
/// as the graph's plans.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnLibrary& library) : library_(library) {}
  CudnnGraph(const CudnnGraph&) = delete;

  struct Tensor {
    const CudnnDescriptor* descriptor;
    CudnnLayout layout;
  };

  /// The sizes of each batch's product that only the device knows, i32 [batch]: rows and columns of
  /// the result, and the length of the result's sums. Null: the tensors' layouts give the size.
  struct MatmulSizes {
    const Tensor* rows = nullptr;
    const Tensor* columns = nullptr;
    const Tensor* sums = nullptr;
  };

  /// Returns a tensor in the device's memory, to which a run gives an address by `id` (above 0). If
  /// `offsets` are given, each batch begins at its own element, and has rows up to the next batch.
  Tensor memory(int64_t id, const CudnnLayout& layout, cudnnDataType_t type,
                const Tensor* offsets = nullptr) {
    return tensor(id, layout, type, false, false, offsets);
  }
  /// Returns a tensor of one f32, to which a run gives an address in the host's memory.
  Tensor scalar(int64_t id) {
    return tensor(id, packed_layout(1, 1, 1, 1), CUDNN_DATA_FLOAT, false, true);
  }
  /// Returns a tensor for an intermediate result, which is never in memory.
  Tensor inner(const CudnnLayout& layout, cudnnDataType_t type, const Tensor* offsets = nullptr) {
    return tensor(next_inner_id_++, layout, type, true, false, offsets);
  }

  /// Adds result = mode(x, b, condition). Operands that a mode does not take are null.
  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b,
                 const Tensor* condition, const Tensor& result,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  /// Adds a pointwise operation. Returns its result, an inner tensor with the layout of x.
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, CudnnTypes types = {});
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                   CudnnTypes types = {});
  /// Returns condition ? x : otherwise.
  Tensor select(const Tensor& condition, const Tensor& x, const Tensor& otherwise);
  /// Returns the index of each element of x along a dim (2: row, 3: column), i32.
  Tensor index(const Tensor& x, int64_t dim);

  /// Adds result = a b.
  void matmul(const Tensor& a, const Tensor& b, const Tensor& result, const MatmulSizes& sizes);
  /// Adds a reduction over the dims in which the result has size 1, or fewer heads.
  void reduce(cudnnReduceTensorOp_t operation, const Tensor& x, const Tensor& result);
  /// Adds a change of layout. Returns the same elements in `layout`, rounded to bf16.
  Tensor reshape(const Tensor& x, const CudnnLayout& layout, const Tensor* offsets = nullptr);

  /// Ends the graph and returns it, for the device of `handle`. If `handle` is null, the device is
  /// described later (CudnnPlanDevice). Throws Error if cuDNN does not accept the graph.
  const CudnnDescriptor& finish(cudnnHandle_t handle);

 private:
  Tensor tensor(int64_t id, const CudnnLayout& layout, cudnnDataType_t type, bool is_virtual,
                bool is_by_value, const Tensor* offsets = nullptr);
  CudnnDescriptor& add(cudnnBackendDescriptorType_t type) {
    return descriptors_.emplace_back(library_, type);
  }
  using Operands =
      std::initializer_list<std::pair<cudnnBackendAttributeName_t, const CudnnDescriptor*>>;
  /// Adds an operation. Operands that it does not have are null.
  void add_operation(cudnnBackendDescriptorType_t type, const char* what, Operands operands);
  CudnnDescriptor& pointwise_kind(cudnnPointwiseMode_t mode, cudnnDataType_t compute);

  const CudnnLibrary& library_;
  std::deque<CudnnDescriptor> descriptors_;  // a deque, whose elements do not move
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_inner_id_ = int64_t{1} << 32;  // beyond the ids of memory
};

}  // namespace tessera
