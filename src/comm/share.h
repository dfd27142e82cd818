#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace tessera {

// What ranks of a group tell each other in numbers and texts, on the processor. All ranks of the
// group make these calls together. `name` is that of the call, for messages.

/// Returns numbers as a tensor of bytes, because tensors have no type of 64-bit integers. It refers
/// to the numbers.
Tensor byte_tensor(std::span<const uint64_t> numbers);

/// Returns the numbers of all ranks, by position. All ranks give equally many.
std::vector<uint64_t> gather_numbers(Communicator& group, std::string_view name,
                                     std::span<const uint64_t> own);

/// Returns the text of the rank at position `root`.
std::string broadcast_text(Communicator& group, std::string_view name, int root,
                           const std::string& own);

/// A text of one rank.
struct RankText {
  int position = 0;
  std::string text;
};

/// Returns the text of the first rank that has one; none if no rank has one.
std::optional<RankText> first_text(Communicator& group, std::string_view name,
                                   const std::optional<std::string>& own);

/// Throws Error on every rank if any rank has an error. It names the first such rank.
void throw_on_all(Communicator& group, const std::optional<std::string>& own_error);

}  // namespace tessera
