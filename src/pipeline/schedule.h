#pragma once

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/worded.h"
#include "program/operation.h"

namespace tessera {

// A pipeline schedule as data: for each rank the list of what it does in a step, in order. All
// types here are values, and all functions are pure: any thread may call them.
//
// The model is cut into *chunks*, numbered from its first layer to its last. Each rank (a pipeline
// stage) has one chunk or several. The batch is cut into micro-batches. What crosses between two
// neighbouring chunks is a *boundary*: activations to the next chunk, gradients to the one before.
//
// (NOLINT: clang-tidy reports a null pointer in a defaulted operator<=>.)

/// What an action computes for one chunk and one micro-batch.
enum class ActionKind {
  forward,
  backward,          ///< input gradients and weight gradients at once
  input_gradients,   ///< the half of the backward pass that the chunk before waits for
  weight_gradients,  ///< the other half, which no other chunk waits for
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<ActionKind>{
    "forward", "backward", "input gradients", "weight gradients"};

/// One piece of a rank's work.
struct ChunkAction {
  ActionKind kind = ActionKind::forward;
  int chunk = 0;
  int micro_batch = 0;

  auto operator<=>(const ChunkAction&) const = default;  // NOLINT(modernize-use-nullptr)
};

enum class BoundaryKind { activations, gradients };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<BoundaryKind>{"activations", "gradients"};

/// Returns the lane of the messages of a kind. Each lane has its own order.
constexpr Lane message_lane(BoundaryKind kind) {
  return kind == BoundaryKind::activations ? Lane::messages_forward : Lane::messages_backward;
}

/// The boundary of one micro-batch, sent from the rank of one chunk to the rank of its neighbour.
struct BoundaryMessage {
  BoundaryKind kind = BoundaryKind::activations;
  int chunk = 0;  ///< the chunk that computes it
  int micro_batch = 0;

  auto operator<=>(const BoundaryMessage&) const = default;  // NOLINT(modernize-use-nullptr)
  /// Returns the chunk that needs it: the next one for activations, the one before for gradients.
  int receiver() const { return kind == BoundaryKind::activations ? chunk + 1 : chunk - 1; }
};

/// What a rank does with a message. Posts do not block. A wait blocks until the message has moved,
/// which it does once both its send and its receive are posted.
enum class MessageCall { post_send, post_receive, wait_send, wait_receive };
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<MessageCall>{"post send", "post receive",
                                                                       "wait send", "wait receive"};

struct MessageEntry {
  MessageCall call = MessageCall::post_send;
  BoundaryMessage message;

  auto operator<=>(const MessageEntry&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One entry of a rank's list.
using ScheduleEntry = std::variant<ChunkAction, MessageEntry>;

/// Returns whether an entry is a wait for a message.
bool is_wait(const ScheduleEntry& entry);

/// The messages of a channel arrive in the order in which they are sent: the first receive that is
/// posted gets the first message.
struct Channel {
  int sender = 0;  ///< rank
  int receiver = 0;
  BoundaryKind kind = BoundaryKind::activations;

  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Says which rank has which chunk. The placement belongs to the schedule.
struct ChunkPlacement {
  int ranks = 0;
  std::vector<int> rank_of_chunk;  ///< by chunk

  bool operator==(const ChunkPlacement&) const = default;
  int chunks() const { return static_cast<int>(rank_of_chunk.size()); }
  bool has(int chunk) const { return chunk >= 0 && chunk < chunks(); }
  /// Returns the rank of a chunk that exists.
  int rank(int chunk) const { return rank_of_chunk[static_cast<size_t>(chunk)]; }
  /// Returns the chunks of a rank, in the model's order.
  std::vector<int> chunks_of(int rank) const;

  /// Returns whether a message crosses here. Between two chunks of one rank nothing is sent.
  bool crosses(const BoundaryMessage& message) const;
  /// Returns the channel of a message that crosses.
  Channel channel(const BoundaryMessage& message) const;

  /// Returns the boundary that an action needs, or computes, whether it crosses to another rank or
  /// not. Returns none at the ends of the model, and for weight gradients.
  std::optional<BoundaryMessage> boundary_before(const ChunkAction& action) const;
  std::optional<BoundaryMessage> boundary_after(const ChunkAction& action) const;
  /// Returns the message that an action needs, or sends when it is done. Returns none if it needs
  /// or sends none, or if the chunk does not exist.
  std::optional<BoundaryMessage> input_of(const ChunkAction& action) const;
  std::optional<BoundaryMessage> output_of(const ChunkAction& action) const;
};

/// Returns the placement in which chunk c is on rank c mod `ranks`.
ChunkPlacement loop_placement(int ranks, int chunks_per_rank);

/// Returns the placement in which rank r has the chunks r and 2 * ranks - 1 - r: down the ranks and
/// up again. The first rank has both ends of the model, and the turn needs no message.
ChunkPlacement v_placement(int ranks);

/// The actions of all ranks, without their messages: what generators and files give.
struct ActionLists {
  std::string name;
  int micro_batches = 0;
  ChunkPlacement placement;
  std::vector<std::vector<ChunkAction>> ranks;

  bool operator==(const ActionLists&) const = default;
};

/// The complete lists, as a rank executes them.
struct PipelineSchedule {
  std::string name;
  int micro_batches = 0;
  ChunkPlacement placement;
  std::vector<std::vector<ScheduleEntry>> ranks;

  bool operator==(const PipelineSchedule&) const = default;
};

/// Returns an action in words: "forward of chunk 1, micro-batch 2".
std::string words_for(const ChunkAction& action);

/// Returns a message in words: "activations of micro-batch 2 from chunk 1 to chunk 2".
std::string words_for(const BoundaryMessage& message);

}  // namespace tessera
