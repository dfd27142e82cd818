#include "ops/moe/grouped_layout.h"

#include "base/round_up.h"

namespace tessera {
namespace {

GroupedOperand shared_rows(const void* base, int64_t width, DType dtype) {
  return {.base = base, .row_bytes = width * dtype_size(dtype), .stride = width};
}

GroupedOperand matrices(const void* base, int64_t rows, int64_t width, DType dtype) {
  return {.base = base, .group_bytes = rows * width * dtype_size(dtype), .stride = width};
}

}  // namespace

GroupedLayout grouped_layout(const GroupedShape& shape, const GroupedOperands& operands) {
  const int64_t in = shape.in, out = shape.out;
  const auto rows = static_cast<int32_t>(shape.rows);
  const auto in_size = static_cast<int32_t>(in), out_size = static_cast<int32_t>(out);
  if (shape.kind == GroupedKind::weight_gradient) {
    const GroupedOperand result = matrices(operands.result, out, in, shape.output);
    return {.size = {out_size, in_size, rows},
            .rows_are_k = true,
            .a = shared_rows(operands.rows, out, shape.input),
            .b = shared_rows(operands.second, in, shape.input),
            .c = result,
            .d = result};
  }
  const bool forward = shape.kind == GroupedKind::forward;
  return {.size = {rows, forward ? out_size : in_size, forward ? in_size : out_size},
          .rows_are_k = false,
          .a = shared_rows(operands.rows, forward ? in : out, shape.input),
          .b = matrices(operands.second, out, in, shape.input),
          .c = shared_rows(shape.adds ? operands.sum : nullptr, forward ? out : in, DType::f32),
          .d = shared_rows(operands.result, forward ? out : in, shape.output)};
}

GroupedAreas::GroupedAreas(int64_t groups)
    : groups_(groups),
      sizes_bytes_(round_up(groups * 3 * static_cast<int64_t>(sizeof(int32_t)), kAlignment)),
      list_bytes_(round_up(groups * static_cast<int64_t>(sizeof(int64_t)), kAlignment)) {}

GroupTable GroupedAreas::table(GroupedLibrary library, const GroupedShape& shape,
                               const GroupedOperands& operands, std::byte* workspace) const {
  const GroupedLayout layout = grouped_layout(shape, operands);
  const bool adds = shape.kind == GroupedKind::weight_gradient || shape.adds;
  const bool sizes_by_group = library == GroupedLibrary::cutlass;
  // The factors come first, then the sizes, then the lists of each operand.
  std::byte* memory = align_up(workspace, kAlignment) + kAlignment;
  GroupTable table{.groups = groups_,
                   .offsets = operands.offsets,
                   .size = {layout.size[0], layout.size[1], layout.size[2]},
                   .rows_are_k = layout.rows_are_k,
                   .operands = {layout.a, layout.b, layout.c, layout.d},
                   .sizes = reinterpret_cast<int32_t*>(memory),
                   .group_step = sizes_by_group ? 3 : 1,
                   .size_step = sizes_by_group ? 1 : groups_,
                   .addresses = {},
                   .strides = {},
                   .beta = adds ? 1.0f : 0.0f,
                   .factors = reinterpret_cast<float*>(memory - kAlignment)};
  memory += sizes_bytes_;
  for (int i = 0; i < kGroupedOperands; ++i) {
    table.addresses[i] = reinterpret_cast<const void**>(memory);
    table.strides[i] = reinterpret_cast<int64_t*>(memory + list_bytes_);
    memory += 2 * list_bytes_;
  }
  return table;
}

std::byte* GroupedAreas::library_memory(std::byte* workspace) const {
  return align_up(workspace, kAlignment) + kAlignment + sizes_bytes_ +
         2 * kGroupedOperands * list_bytes_;
}

}  // namespace tessera
