#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "base/round_up.h"
#include "ops/update/update_kernels.h"
#include "program/operation.h"
#include "tensor/alignment.h"

namespace tessera {

// Puts the table of a kernel over parts of many flat values (DeviceTable) into the workspace.

/// Returns the bytes that a table takes at the start of the workspace.
template <typename Row>
int64_t table_bytes(size_t rows) {
  return round_up(static_cast<int64_t>(rows * sizeof(Row)), kAlignment);
}

/// Returns the number of blocks that handle `count` elements of a row.
template <typename Row>
int64_t row_blocks(int64_t count) {
  return (count + Row::kPerBlock - 1) / Row::kPerBlock;
}

/// Enqueues a copy of a table to the start of the workspace. The bytes stay in pinned memory of the
/// host as long as the runtime lives, so a captured graph can copy them again. They do not pile up,
/// because an operation of a plan has the same table in every step.
void copy_to_workspace(const Execution& execution, std::span<const std::byte> table);

/// Assigns blocks to the rows, enqueues a copy of them to the workspace and returns the table.
template <typename Row>
DeviceTable<Row> put_table(const Execution& execution, std::vector<Row> rows) {
  static_assert(std::has_unique_object_representations_v<Row>);  // tables are found by their bytes
  DeviceTable<Row> table;
  for (Row& row : rows) {
    row.first_block = table.blocks;
    table.blocks += row_blocks<Row>(row.count);
  }
  copy_to_workspace(execution, std::as_bytes(std::span(rows)));
  table.rows = reinterpret_cast<const Row*>(execution.workspace.data());
  table.count = std::ssize(rows);
  return table;
}

}  // namespace tessera
