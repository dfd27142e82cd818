#include "ops/moe/group_part.h"

namespace tessera {
namespace {

/// Writes the lists and the factors of the table, with one thread per group.
__global__ void write_group_table(GroupTable table) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (group >= table.groups) return;
  const int32_t first_row = table.offsets[group];
  const int32_t rows = table.offsets[group + 1] - first_row;
  int32_t* const size = table.sizes + group * table.group_step;
  size[0] = !table.rows_are_k ? rows : rows > 0 ? table.size[0] : 0;
  size[table.size_step] = table.size[1];
  size[2 * table.size_step] = table.rows_are_k ? rows : table.size[2];
  if (group == 0) {
    table.factors[0] = 1.0f;
    table.factors[1] = table.beta;
  }
  for (int i = 0; i < kGroupedOperands; ++i) {
    table.addresses[i][group] = part_of_group(table.operands[i], first_row, group);
    table.strides[i][group] = table.operands[i].stride;
  }
}

}  // namespace

template <typename Vendor>
void write_group_table_device(const GroupTable& table, Stream& stream) {
  constexpr int kThreads = 128;
  launch(write_group_table,
         {.blocks = (table.groups + kThreads - 1) / kThreads, .threads = kThreads}, stream, table);
}

template void write_group_table_device<ThisVendor>(const GroupTable&, Stream&);

}  // namespace tessera
