#include "ops/attention/cudnn/graph_cuda.h"

#include <fmt/core.h>

namespace tessera {
namespace {

constexpr int64_t kTensorAlignment = 16;  // bytes; every tensor of a program is aligned to more

const CudnnDescriptor* descriptor_of(const CudnnGraph::Tensor* tensor) {
  return tensor == nullptr ? nullptr : tensor->descriptor;
}

}  // namespace

CudnnGraph::Tensor CudnnGraph::tensor(int64_t id, const CudnnLayout& layout, cudnnDataType_t type,
                                      bool is_virtual, bool is_by_value, const Tensor* offsets) {
  CudnnDescriptor& result = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(layout.dims));
  result.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(layout.strides));
  result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kTensorAlignment);
  result.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  result.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_by_value);
  if (offsets != nullptr) result.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, *offsets->descriptor);
  result.finalize(fmt::format("describe tensor {}", id));
  return {&result, layout};
}

void CudnnGraph::add_operation(cudnnBackendDescriptorType_t type, const char* what,
                               Operands operands) {
  CudnnDescriptor& operation = add(type);
  for (const auto& [name, operand] : operands) {
    if (operand != nullptr) operation.set(name, *operand);
  }
  operation.finalize(fmt::format("describe operation {} of a graph, {}", operations_.size(), what));
  operations_.push_back(operation.get());
}

CudnnDescriptor& CudnnGraph::pointwise_kind(cudnnPointwiseMode_t mode, cudnnDataType_t compute) {
  CudnnDescriptor& kind = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  return kind;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b,
                           const Tensor* condition, const Tensor& result, cudnnDataType_t compute) {
  CudnnDescriptor& kind = pointwise_kind(mode, compute);
  kind.finalize("describe what a pointwise operation does");
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise",
                {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &kind},
                 {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor_of(b)},
                 {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, descriptor_of(condition)},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result.descriptor}});
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x,
                                         CudnnTypes types) {
  const Tensor result = inner(x.layout, types.result);
  pointwise(mode, x, nullptr, nullptr, result, types.compute);
  return result;
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x,
                                         const Tensor& b, CudnnTypes types) {
  const Tensor result = inner(x.layout, types.result);
  pointwise(mode, x, &b, nullptr, result, types.compute);
  return result;
}

CudnnGraph::Tensor CudnnGraph::select(const Tensor& condition, const Tensor& x,
                                      const Tensor& otherwise) {
  const Tensor result = inner(x.layout, CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &otherwise, &condition, result);
  return result;
}

CudnnGraph::Tensor CudnnGraph::index(const Tensor& x, int64_t dim) {
  const Tensor result = inner(x.layout, CUDNN_DATA_INT32);
  CudnnDescriptor& kind = pointwise_kind(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, dim);
  kind.finalize("describe an index");
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "index",
                {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &kind},
                 {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result.descriptor}});
  return result;
}

void CudnnGraph::matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                        const MatmulSizes& sizes) {
  CudnnDescriptor& kind = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describe a matrix product");
  add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul",
                {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor},
                 {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor},
                 {CUDNN_ATTR_OPERATION_MATMUL_CDESC, result.descriptor},
                 {CUDNN_ATTR_OPERATION_MATMUL_DESC, &kind},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, descriptor_of(sizes.rows)},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, descriptor_of(sizes.columns)},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, descriptor_of(sizes.sums)}});
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how, const Tensor& x, const Tensor& result) {
  CudnnDescriptor& kind = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
  kind.finalize("describe a reduction");
  add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction",
                {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, &kind},
                 {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor},
                 {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, result.descriptor}});
}

CudnnGraph::Tensor CudnnGraph::reshape(const Tensor& x, const CudnnLayout& layout,
                                       const Tensor* offsets) {
  const Tensor result = inner(layout, CUDNN_DATA_BFLOAT16, offsets);
  add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape",
                {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor},
                 {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, result.descriptor}});
  return result;
}

const CudnnDescriptor& CudnnGraph::finish(cudnnHandle_t handle) {
  CudnnDescriptor& graph = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(operations_));
  graph.finalize("describe the graph of attention");
  return graph;
}

}  // namespace tessera
