#pragma once

// The kernel that the *_cuda.cu files instantiate from CUTLASS's parts. Persistent blocks fetch
// tiles by TMA, and two groups of warps multiply one tile together. The scheduler takes the tiles
// of all groups one after the other, in a fixed order, and does not split sums. So the results of
// equal operands have the same bits in every run.

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "ops/moe/cutlass_grouped.h"

namespace tessera::cutlass_grouped {

using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

/// A grouped product of bf16 matrices. LayoutA and LayoutB are the memory layouts of A and B. The
/// types of C and D are those of their elements. C may be void: the caller's beta must then be 0.
template <typename LayoutA, typename LayoutB, typename C, typename D>
struct Product {
  using Size = cute::Shape<int, int, int>;
  using Sizes = cutlass::gemm::GroupProblemShape<Size>;
  using Input = cutlass::bfloat16_t;
  using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  template <typename T>
  static constexpr int kAlignment = 16 / sizeof(T);  // elements; TMA reads aligned 16 bytes
  using AnyC = cute::conditional_t<cute::is_void_v<C>, D, C>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, RowMajor*, kAlignment<AnyC>,
      D, RowMajor*, kAlignment<D>,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
  using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
      sizeof(typename Epilogue::SharedStorage))>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Input, LayoutA*, kAlignment<Input>,
      Input, LayoutB*, kAlignment<Input>, float, Tile, Cluster, Stages,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Sizes, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideC = typename Kernel::InternalStrideC;
  using StrideD = typename Kernel::InternalStrideD;
  // write_group_table_device() writes the sizes and strides as plain integers.
  static_assert(sizeof(Size) == 3 * sizeof(int32_t));
  static_assert(sizeof(StrideA) == sizeof(int64_t) && sizeof(StrideB) == sizeof(int64_t) &&
                sizeof(StrideC) == sizeof(int64_t) && sizeof(StrideD) == sizeof(int64_t));

  /// Returns a list without const, because CUTLASS's arguments have none. CUTLASS only reads it.
  template <typename Element>
  static Element* without_const(const void* elements) {
    return static_cast<Element*>(const_cast<void*>(elements));
  }

  static typename Gemm::Arguments arguments(const GroupedCall& call) {
    typename Gemm::Arguments result{};
    result.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    result.problem_shape = {call.groups, without_const<Size>(call.sizes), nullptr};
    result.mainloop.ptr_A = without_const<const Input*>(call.a.addresses);
    result.mainloop.dA = without_const<StrideA>(call.a.strides);
    result.mainloop.ptr_B = without_const<const Input*>(call.b.addresses);
    result.mainloop.dB = without_const<StrideB>(call.b.strides);
    result.epilogue.thread.alpha = 1.0f;
    result.epilogue.thread.beta = call.beta;
    if constexpr (!cute::is_void_v<C>) {
      result.epilogue.ptr_C = without_const<const C*>(call.c.addresses);
      result.epilogue.dC = without_const<StrideC>(call.c.strides);
    }
    result.epilogue.ptr_D = without_const<D*>(call.d.addresses);
    result.epilogue.dD = without_const<StrideD>(call.d.strides);
    result.hw_info.sm_count = call.multiprocessors;
    return result;
  }

  /// Puts the product into the call's stream, unless its workspace is too small.
  static GroupedOutcome run(const GroupedCall& call) {
    const typename Gemm::Arguments gemm_arguments = arguments(call);
    GroupedOutcome outcome{.workspace_bytes =
                               static_cast<int64_t>(Gemm::get_workspace_size(gemm_arguments))};
    if (outcome.workspace_bytes > call.workspace_bytes) return outcome;
    Gemm gemm;
    const auto stream = static_cast<cudaStream_t>(call.stream);
    cutlass::Status status = Gemm::can_implement(gemm_arguments);
    if (status == cutlass::Status::kSuccess)
      status = gemm.initialize(gemm_arguments, call.workspace, stream);
    if (status == cutlass::Status::kSuccess) status = gemm.run(stream);
    if (status != cutlass::Status::kSuccess) outcome.error = cutlassGetStatusString(status);
    return outcome;
  }
};

}  // namespace tessera::cutlass_grouped
