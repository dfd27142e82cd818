#pragma once

#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "pipeline/schedule.h"

namespace tessera::testing {

/// Executes lists as ranks that are threads would, an entry at a time in turn, with queues of
/// posted messages. It shares no code with the validator: messages move by their position in the
/// queues, and each action looks at what it was really given.
class NaiveExecutor {
 public:
  explicit NaiveExecutor(const PipelineSchedule& schedule)
      : schedule_(schedule), ranks_(schedule.ranks.size()) {}

  /// Returns whether all lists come to their end, each action has its inputs and runs once, and
  /// every message is awaited on both sides.
  bool run() {
    for (bool moved = true; moved && !wrong_;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size() && !wrong_; ++rank) {
        if (ranks_[rank].next < schedule_.ranks[rank].size() && step(rank)) moved = true;
      }
    }
    return !wrong_ && is_complete();
  }

 private:
  using Slot = std::pair<int, int>;                        // chunk, micro-batch
  using Queue = std::tuple<size_t, size_t, BoundaryKind>;  // from rank, to rank
  struct Post {
    size_t rank;
    BoundaryMessage message;
  };
  struct Rank {
    size_t next = 0;
    std::set<Slot> activations, gradients;  // that a chunk's forward or backward may read
    std::set<Slot> forward, whole, input, weight;
    std::map<BoundaryMessage, BoundaryMessage> arrived;  // what each receive was given
    std::set<BoundaryMessage> sent, posted_sends, posted_receives, awaited_sends, awaited_receives;
  };

  int chunks() const { return static_cast<int>(schedule_.placement.rank_of_chunk.size()); }
  size_t rank_of(int chunk) const {
    return static_cast<size_t>(schedule_.placement.rank_of_chunk[static_cast<size_t>(chunk)]);
  }
  bool exists(int chunk, int micro_batch) const {
    return chunk >= 0 && chunk < chunks() && micro_batch >= 0 &&
           micro_batch < schedule_.micro_batches;
  }
  bool fail() {
    wrong_ = true;
    return true;
  }

  bool step(size_t number) {
    Rank& rank = ranks_[number];
    const ScheduleEntry& entry = schedule_.ranks[number][rank.next];
    bool done = true;
    if (const auto* action = std::get_if<ChunkAction>(&entry)) {
      act(number, rank, *action);
    } else {
      done = call(number, rank, std::get<MessageEntry>(entry));
    }
    if (done) ++rank.next;
    move_messages();
    return done;
  }

  void act(size_t number, Rank& rank, const ChunkAction& action) {
    const Slot slot{action.chunk, action.micro_batch};
    if (!exists(action.chunk, action.micro_batch) || rank_of(action.chunk) != number) {
      fail();
      return;
    }
    const bool first = action.chunk == 0, last = action.chunk == chunks() - 1;
    const bool begun = rank.input.contains(slot) || rank.whole.contains(slot);
    bool fine = true;
    switch (action.kind) {
      case ActionKind::forward:
        fine = (first || rank.activations.contains(slot)) && rank.forward.insert(slot).second;
        if (fine && !last && rank_of(action.chunk + 1) == number) {
          rank.activations.insert({action.chunk + 1, action.micro_batch});
        }
        break;
      case ActionKind::backward:
      case ActionKind::input_gradients:
        fine = (last || rank.gradients.contains(slot)) && rank.forward.contains(slot) && !begun &&
               !rank.weight.contains(slot);
        (action.kind == ActionKind::backward ? rank.whole : rank.input).insert(slot);
        if (fine && !first && rank_of(action.chunk - 1) == number) {
          rank.gradients.insert({action.chunk - 1, action.micro_batch});
        }
        break;
      case ActionKind::weight_gradients:
        fine = rank.input.contains(slot) && rank.weight.insert(slot).second;
        break;
    }
    if (!fine) fail();
  }

  bool call(size_t number, Rank& rank, const MessageEntry& entry) {
    const BoundaryMessage& message = entry.message;
    const bool forward = message.kind == BoundaryKind::activations;
    const int to = message.chunk + (forward ? 1 : -1);
    if (!exists(message.chunk, message.micro_batch) || !exists(to, message.micro_batch)) {
      return fail();
    }
    const bool sends = entry.call == MessageCall::post_send || entry.call == MessageCall::wait_send;
    if (rank_of(message.chunk) == rank_of(to)) return fail();
    if (rank_of(sends ? message.chunk : to) != number) return fail();
    const Queue queue{rank_of(message.chunk), rank_of(to), message.kind};
    const Slot computed{message.chunk, message.micro_batch};
    switch (entry.call) {
      case MessageCall::post_send: {
        const bool there = forward ? rank.forward.contains(computed)
                                   : rank.whole.contains(computed) || rank.input.contains(computed);
        if (!there || !rank.posted_sends.insert(message).second) return fail();
        sends_[queue].push_back({number, message});
        return true;
      }
      case MessageCall::post_receive:
        if (!rank.posted_receives.insert(message).second) return fail();
        receives_[queue].push_back({number, message});
        return true;
      case MessageCall::wait_send:
        if (!rank.posted_sends.contains(message)) return fail();
        if (!rank.sent.contains(message)) return false;
        if (!rank.awaited_sends.insert(message).second) return fail();
        return true;
      case MessageCall::wait_receive: {
        if (!rank.posted_receives.contains(message)) return fail();
        const auto arrived = rank.arrived.find(message);
        if (arrived == rank.arrived.end()) return false;
        if (arrived->second != message) return fail();
        if (!rank.awaited_receives.insert(message).second) return fail();
        (forward ? rank.activations : rank.gradients).insert({to, message.micro_batch});
        return true;
      }
    }
    return fail();
  }

  void move_messages() {
    for (auto& [queue, sends] : sends_) {
      std::deque<Post>& receives = receives_[queue];
      while (!sends.empty() && !receives.empty()) {
        ranks_[sends.front().rank].sent.insert(sends.front().message);
        ranks_[receives.front().rank].arrived.insert(
            {receives.front().message, sends.front().message});
        sends.pop_front();
        receives.pop_front();
      }
    }
  }

  bool is_complete() const {
    for (size_t number = 0; number < ranks_.size(); ++number) {
      const Rank& rank = ranks_[number];
      if (rank.next != schedule_.ranks[number].size()) return false;
      if (rank.posted_sends != rank.awaited_sends) return false;
      if (rank.posted_receives != rank.awaited_receives) return false;
    }
    for (int chunk = 0; chunk < chunks(); ++chunk) {
      for (int micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
        const Rank& rank = ranks_[rank_of(chunk)];
        const Slot slot{chunk, micro_batch};
        const bool halves = rank.input.contains(slot) && rank.weight.contains(slot);
        if (!rank.forward.contains(slot) || rank.whole.contains(slot) == halves) return false;
      }
    }
    return true;
  }

  const PipelineSchedule& schedule_;
  std::vector<Rank> ranks_;
  std::map<Queue, std::deque<Post>> sends_, receives_;
  bool wrong_ = false;
};

inline bool run_naively(const PipelineSchedule& schedule) { return NaiveExecutor(schedule).run(); }

}  // namespace tessera::testing
