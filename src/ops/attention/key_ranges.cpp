#include "ops/attention/key_ranges.h"

#include <algorithm>

namespace tessera {
namespace {

/// Checks positions [sequences, length], or none if null. `item` is the error's word for a row.
void check_ascending(const Operation& operation, const int32_t* positions, int64_t sequences,
                     int64_t length, const char* item) {
  for (int64_t row = 0; positions != nullptr && row < sequences * length; ++row) {
    const bool is_first = row % length == 0;
    TESSERA_EXPECT(operation,
                   positions[row] >= 0 && (is_first || positions[row] > positions[row - 1]),
                   "{} {} of its sequence stands at {}, after {}; positions ascend", item,
                   row % length, positions[row], is_first ? -1 : positions[row - 1]);
  }
}

/// Returns the index of the first of a sequence's keys at `position` or after it.
int64_t first_key_from(const int32_t* key_positions, int64_t keys, int64_t position) {
  if (key_positions == nullptr) return std::min(position, keys);
  return std::lower_bound(key_positions, key_positions + keys, position) - key_positions;
}

}  // namespace

KeyRanges fill_key_ranges(const Operation& operation, const AttentionShape& shape,
                          const TokenPositions& positions, std::byte* memory) {
  check_ascending(operation, positions.queries, shape.sequences, shape.sequence, "token");
  check_ascending(operation, positions.keys, shape.sequences, shape.keys, "key");
  Scratch scratch(memory);
  const KeyRangeMemory ranges(scratch, shape);
  for (int64_t token = 0; token < shape.tokens(); ++token) {
    const int64_t index = token % shape.sequence;
    const int64_t position = positions.queries ? positions.queries[token] : index;
    const int64_t start = positions.document_starts ? positions.document_starts[token] : 0;
    TESSERA_EXPECT(operation, start >= 0 && start <= position,
                   "token {} of its sequence is in a document that starts at {}", index, start);
    const int32_t* keys =
        positions.keys ? positions.keys + token / shape.sequence * shape.keys : nullptr;
    const int64_t end = first_key_from(keys, shape.keys, position + 1);
    ranges.begin[token] =
        static_cast<int32_t>(std::min(first_key_from(keys, shape.keys, start), end));
    ranges.end[token] = static_cast<int32_t>(end);
    TESSERA_EXPECT(operation, index == 0 || ranges.begin[token] >= ranges.begin[token - 1],
                   "token {} of its sequence is in a document that starts before that of the "
                   "token before it",
                   index);
  }
  return {ranges.begin, ranges.end};
}

}  // namespace tessera
