// Makes a stage's list from a rank's list of a schedule, in three steps:
//
// 1. EntryWriter turns each entry into one over the chunk's program. A boundary between two chunks
//    of the stage needs no message: it is kept, and copied before the action that needs it.
// 2. number_frames() replaces micro-batches by the numbers of their frames.
// 3. for_plan() leaves of the entries what memory they need.

#include "pipeline/stage_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

Segment segment_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return Segment::forward;
    case ActionKind::backward:
      return Segment::backward;
    case ActionKind::input_gradients:
      return Segment::input_gradients;
    case ActionKind::weight_gradients:
      return Segment::weight_gradients;
  }
  throw InternalError("unknown ActionKind");
}

/// Turns the entries of one rank's list into those of its stage.
class EntryWriter {
 public:
  EntryWriter(const PipelineSchedule& schedule, int stage, std::span<const ChunkProgram> chunks)
      : placement_(schedule.placement) {
    const std::vector<int> own = placement_.chunks_of(stage);
    TESSERA_CHECK(own.size() == chunks.size(), "{} programs for {} chunks of stage {}",
                  chunks.size(), own.size(), stage);
    for (size_t i = 0; i < own.size(); ++i) programs_.emplace(own[i], &chunks[i]);
  }

  std::vector<StageEntry> write(const std::vector<ScheduleEntry>& list) {
    for (const ScheduleEntry& entry : list) {
      std::visit([&](const auto& known) { add(known); }, entry);
    }
    return std::move(entries_);
  }

 private:
  enum class Side { sender, receiver };

  void add(const ChunkAction& action) {
    if (action.kind == ActionKind::backward) whole_.insert(action.chunk);
    if (action.kind == ActionKind::input_gradients) split_.insert(action.chunk);
    TESSERA_CHECK(!whole_.contains(action.chunk) || !split_.contains(action.chunk),
                  "chunk {} has whole backward passes and halves", action.chunk);
    const std::optional<BoundaryMessage> input = placement_.boundary_before(action);
    if (input && !placement_.crosses(*input)) {
      entries_.emplace_back(PassedBoundary{.from = hold(*input, Side::sender, /*begins=*/false),
                                           .to = hold(*input, Side::receiver, /*begins=*/true)});
    }
    entries_.emplace_back(StageAction{.action = action,
                                      .run = {.segment = segment_of(action.kind),
                                              .program = programs_.at(action.chunk)->program,
                                              .micro_batch = action.micro_batch}});
    const std::optional<BoundaryMessage> output = placement_.boundary_after(action);
    if (output && !placement_.crosses(*output)) {
      entries_.emplace_back(KeptBoundary{hold(*output, Side::sender, /*begins=*/true)});
    }
  }

  void add(const MessageEntry& entry) {
    const bool posts =
        entry.call == MessageCall::post_send || entry.call == MessageCall::post_receive;
    const bool sends = entry.call == MessageCall::post_send || entry.call == MessageCall::wait_send;
    const Channel channel = placement_.channel(entry.message);
    entries_.emplace_back(
        StageMessage{.call = entry.call,
                     .message = entry.message,
                     .peer = sends ? channel.receiver : channel.sender,
                     .hold = hold(entry.message, sends ? Side::sender : Side::receiver, posts)});
  }

  /// Returns the hold of a boundary's values in the frame that sends or gets them.
  Hold hold(const BoundaryMessage& message, Side side, bool begins) const {
    const bool activations = message.kind == BoundaryKind::activations;
    const ChunkProgram& chunk =
        *programs_.at(side == Side::sender ? message.chunk : message.receiver());
    const std::vector<Value>& sent = activations ? chunk.activations_out : chunk.gradients_out;
    const std::vector<Value>& received = activations ? chunk.activations_in : chunk.gradients_in;
    return {.program = chunk.program,
            .micro_batch = message.micro_batch,
            .values = side == Side::sender ? sent : received,
            .begins = begins};
  }

  const ChunkPlacement& placement_;
  std::map<int, const ChunkProgram*> programs_;  // by chunk
  std::set<int> whole_, split_;  // the chunks with whole backward passes, and with halves of them
  std::vector<StageEntry> entries_;
};

/// Calls visit(program, micro_batch) for each frame that an entry names; visit may change the
/// micro-batch.
template <typename Entry, typename Visit>
void for_each_frame(Entry& entry, Visit&& visit) {
  const auto visit_hold = [&](auto& hold) { visit(hold.program, hold.micro_batch); };
  std::visit(
      [&](auto& known) {
        using Known = std::remove_cvref_t<decltype(known)>;
        if constexpr (std::is_same_v<Known, StageAction>) {
          visit(known.run.program, known.run.micro_batch);
        } else if constexpr (std::is_same_v<Known, PassedBoundary>) {
          visit_hold(known.from);
          visit_hold(known.to);
        } else {
          visit_hold(known.hold);
        }
      },
      entry);
}

/// Replaces each micro-batch by the lowest number that no other micro-batch of the program has
/// between its first entry and its last.
void number_frames(std::vector<StageEntry>& entries) {
  using Frame = std::pair<int, int>;  // program and micro-batch
  std::map<Frame, size_t> last_entry;
  for (size_t i = 0; i < entries.size(); ++i) {
    for_each_frame(std::as_const(entries[i]), [&](int program, int micro_batch) {
      last_entry[{program, micro_batch}] = i;
    });
  }
  std::map<Frame, int> numbers;               // of the frames in flight
  std::map<int, std::set<int>> numbers_used;  // by program
  for (size_t i = 0; i < entries.size(); ++i) {
    std::set<Frame> ended;
    for_each_frame(entries[i], [&](int program, int& micro_batch) {
      const Frame frame{program, micro_batch};
      auto [found, is_new] = numbers.try_emplace(frame, 0);
      if (is_new) {
        while (numbers_used[program].contains(found->second)) ++found->second;
        numbers_used[program].insert(found->second);
      }
      micro_batch = found->second;
      if (last_entry.at(frame) == i) ended.insert(frame);
    });
    for (const Frame& frame : ended) {
      numbers_used[frame.first].erase(numbers.at(frame));
      numbers.erase(frame);
    }
  }
}

}  // namespace

std::vector<ListEntry> StageList::for_plan() const {
  std::vector<ListEntry> result;
  for (const StageEntry& entry : entries) {
    std::visit(
        [&](const auto& known) {
          using Known = std::remove_cvref_t<decltype(known)>;
          if constexpr (std::is_same_v<Known, StageAction>) {
            result.insert(result.end(), known.runs().begin(), known.runs().end());
          } else if constexpr (std::is_same_v<Known, PassedBoundary>) {
            result.insert(result.end(), {known.to, known.from, end_of(known.to)});
          } else {
            result.emplace_back(known.hold);
          }
        },
        entry);
  }
  return result;
}

StageList stage_list(const PipelineSchedule& schedule, int stage,
                     std::span<const ChunkProgram> chunks) {
  StageList list{
      .micro_batches = schedule.micro_batches,
      .entries =
          EntryWriter(schedule, stage, chunks).write(schedule.ranks[static_cast<size_t>(stage)])};
  number_frames(list.entries);
  return list;
}

PipelineSchedule forward_schedule(const ChunkPlacement& placement) {
  ActionLists lists{.name = "forward", .micro_batches = 1, .placement = placement, .ranks = {}};
  for (int rank = 0; rank < placement.ranks; ++rank) {
    lists.ranks.emplace_back();
    for (const int chunk : placement.chunks_of(rank)) {
      lists.ranks.back().push_back({.kind = ActionKind::forward, .chunk = chunk, .micro_batch = 0});
    }
  }
  return place_messages(std::move(lists));
}

}  // namespace tessera
