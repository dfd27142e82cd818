#include "pipeline/schedule.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"

namespace tessera {

std::vector<int> ChunkPlacement::chunks_of(int rank) const {
  std::vector<int> result;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    if (this->rank(chunk) == rank) result.push_back(chunk);
  }
  return result;
}

bool ChunkPlacement::crosses(const BoundaryMessage& message) const {
  return has(message.chunk) && has(message.receiver()) &&
         rank(message.chunk) != rank(message.receiver());
}

Channel ChunkPlacement::channel(const BoundaryMessage& message) const {
  return {
      .sender = rank(message.chunk), .receiver = rank(message.receiver()), .kind = message.kind};
}

std::optional<BoundaryMessage> ChunkPlacement::boundary_before(const ChunkAction& action) const {
  if (action.kind == ActionKind::weight_gradients) return std::nullopt;
  const bool forward = action.kind == ActionKind::forward;
  const BoundaryMessage boundary{
      .kind = forward ? BoundaryKind::activations : BoundaryKind::gradients,
      .chunk = forward ? action.chunk - 1 : action.chunk + 1,
      .micro_batch = action.micro_batch};
  return has(boundary.chunk) ? std::optional(boundary) : std::nullopt;
}

std::optional<BoundaryMessage> ChunkPlacement::boundary_after(const ChunkAction& action) const {
  if (action.kind == ActionKind::weight_gradients) return std::nullopt;
  const bool forward = action.kind == ActionKind::forward;
  const BoundaryMessage boundary{
      .kind = forward ? BoundaryKind::activations : BoundaryKind::gradients,
      .chunk = action.chunk,
      .micro_batch = action.micro_batch};
  return has(boundary.receiver()) ? std::optional(boundary) : std::nullopt;
}

std::optional<BoundaryMessage> ChunkPlacement::input_of(const ChunkAction& action) const {
  const std::optional<BoundaryMessage> boundary = boundary_before(action);
  return boundary && crosses(*boundary) ? boundary : std::nullopt;
}

std::optional<BoundaryMessage> ChunkPlacement::output_of(const ChunkAction& action) const {
  const std::optional<BoundaryMessage> boundary = boundary_after(action);
  return boundary && crosses(*boundary) ? boundary : std::nullopt;
}

ChunkPlacement loop_placement(int ranks, int chunks_per_rank) {
  ChunkPlacement placement{.ranks = ranks};
  for (int chunk = 0; chunk < ranks * chunks_per_rank; ++chunk) {
    placement.rank_of_chunk.push_back(chunk % ranks);
  }
  return placement;
}

ChunkPlacement v_placement(int ranks) {
  ChunkPlacement placement{.ranks = ranks};
  for (int rank = 0; rank < ranks; ++rank) placement.rank_of_chunk.push_back(rank);
  for (int rank = ranks; rank-- > 0;) placement.rank_of_chunk.push_back(rank);
  return placement;
}

bool is_wait(const ScheduleEntry& entry) {
  const auto* const message = std::get_if<MessageEntry>(&entry);
  return message != nullptr &&
         (message->call == MessageCall::wait_send || message->call == MessageCall::wait_receive);
}

std::string words_for(const ChunkAction& action) {
  return fmt::format("{} of chunk {}, micro-batch {}", word(action.kind), action.chunk,
                     action.micro_batch);
}

std::string words_for(const BoundaryMessage& message) {
  return fmt::format("{} of micro-batch {} from chunk {} to chunk {}", word(message.kind),
                     message.micro_batch, message.chunk, message.receiver());
}

}  // namespace tessera
