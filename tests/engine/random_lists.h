#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/mesh.h"
#include "engine/random_lanes.h"
#include "engine/rank_list.h"

namespace tessera::testing {

/// The programs of a rank, and its list.
struct RandomRank {
  std::vector<std::unique_ptr<Program>> programs;
  RankList list;

  std::vector<const Program*> pointers() const {
    std::vector<const Program*> result;
    for (const auto& program : programs) result.push_back(program.get());
    return result;
  }
};

/// Random lists of the ranks of a mesh: the passes of some micro-batches through the chunks of a
/// pipeline, in parts, and an update of states that all programs change. The ranks of a group make
/// the same sums in the same order on each lane. Each rank draws for itself how sums of different
/// lanes and groups follow each other, and the parts that have them, what it computes between them,
/// and where it posts messages and awaits them. So some lists wait for each other for ever.
class RandomLists {
 public:
  RandomLists(const Mesh& mesh, uint64_t seed)
      : mesh_(mesh),
        seed_(seed),
        shared_(seed),
        stages_(mesh.size(mesh.pipeline())),
        chunks_(stages_ * draw(1, 2)),
        micro_batches_(draw(1, 3)),
        parts_(draw(1, 3)) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      for (int part = 0; part < 2 * parts_; ++part) {
        sums_[{chunk, part}] = RandomNodes::draw_sums(
            shared_, RandomNodes::groups(mesh_), draw(0, 2), fmt::format(" of {}.{}", chunk, part));
      }
    }
    std::vector<std::vector<Axis>> groups = RandomNodes::groups(mesh_);
    groups.push_back({mesh_.pipeline()});
    groups.push_back({mesh_.tensor(), mesh_.pipeline()});
    update_sums_ = RandomNodes::draw_sums(shared_, groups, draw(1, 4), " of the update");
    draw_turns();
  }

  /// Returns what a rank runs. Its update is the last program.
  RandomRank rank(int rank) const { return Writer(*this, rank).write(); }

 private:
  /// A part of a pass of a micro-batch. The parts of the backward pass follow those of the forward
  /// pass.
  struct Turn {
    int chunk = 0;
    int micro_batch = 0;
    int part = 0;
  };
  /// What a chunk sends when a pass of a micro-batch has ended.
  struct Message {
    int chunk = 0;
    int micro_batch = 0;
    auto operator<=>(const Message&) const = default;
  };

  int draw(int least, int most) { return least + static_cast<int>(shared_() % (most - least + 1)); }
  bool share_group(const Turn& a, const Turn& b) const {
    for (const auto& lane : sums_.at({a.chunk, a.part})) {
      for (const RandomSum& sum : lane) {
        for (const auto& other_lane : sums_.at({b.chunk, b.part})) {
          const auto is_same = [&](const RandomSum& other) { return other.axes == sum.axes; };
          if (std::ranges::any_of(other_lane, is_same)) return true;
        }
      }
    }
    return false;
  }
  int stage_of(int chunk) const { return chunk % stages_; }

  /// Draws an order in which all stages could run their parts one at a time.
  void draw_turns() {
    turns_.resize(static_cast<size_t>(stages_));
    std::vector<Turn> open;
    std::map<std::pair<int, int>, int> done;  // by chunk and micro-batch: parts
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      for (int m = 0; m < micro_batches_; ++m) open.push_back({chunk, m, 0});
    }
    while (!open.empty()) {
      const size_t index = shared_() % open.size();
      Turn& turn = open[index];
      const bool waits_for_activations =
          turn.part == 0 && turn.chunk > 0 && done[{turn.chunk - 1, turn.micro_batch}] < parts_;
      const bool waits_for_gradients = turn.part == parts_ && turn.chunk + 1 < chunks_ &&
                                       done[{turn.chunk + 1, turn.micro_batch}] < 2 * parts_;
      if (waits_for_activations || waits_for_gradients) continue;
      const int stage = stage_of(turn.chunk);
      turns_[static_cast<size_t>(stage)].push_back(turn);
      const int ended = ++turn.part;
      done[{turn.chunk, turn.micro_batch}] = ended;
      if (ended == parts_ || ended == 2 * parts_) {
        const size_t way = ended == parts_ ? 0 : 1;
        sent_[{stage, way}].push_back({turn.chunk, turn.micro_batch});
      }
      if (ended == 2 * parts_) open.erase(open.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

  /// Writes the programs and the list of one rank.
  class Writer {
   public:
    Writer(const RandomLists& lists, int rank)
        : lists_(lists),
          rank_(rank),
          own_(lists.seed_ * 1000 + static_cast<uint64_t>(rank)),
          stage_(lists.mesh_.stage(rank)),
          stages_(lists.mesh_.group(rank, std::array{lists.mesh_.pipeline()})) {}

    RandomRank write() {
      for (int chunk = stage_; chunk < lists_.chunks_; chunk += lists_.stages_) write_chunk(chunk);
      write_update();
      for (const Turn& turn : turns_in_own_order()) take(turn);
      while (!sends_.empty()) await_send(0);
      written_.list.emplace_back(Action{.program = static_cast<int>(chunks_.size())});
      return std::move(written_);
    }

   private:
    /// A chunk's values at its ends, first those of the forward pass: what it gets, what it sends.
    struct Chunk {
      Value in[2], out[2];
      std::vector<int> ends;  // by part: the step after it, in its pass
    };
    struct Posted {
      ListMessage message;
      Message of;
    };

    Program& add_program() {
      return *written_.programs.emplace_back(std::make_unique<Program>(lists_.mesh_, rank_));
    }

    void write_chunk(int chunk) {
      Program& program = add_program();
      Builder builder(program);
      RandomNodes nodes(builder, own_());
      nodes.add_states();
      Chunk& written = chunks_[chunk];
      for (const size_t pass : {0, 1}) {
        const auto begin = static_cast<int>(program.nodes().size());
        if (pass == 1) builder.enter_block_of(program.nodes().back(), Phase::backward);
        Value next = written.in[pass] = nodes.add_input(pass == 0 ? "x" : "seed");
        for (int part = 0; part < lists_.parts_; ++part) {
          nodes.compute_from(next);
          nodes.write(in_own_order(
              lists_.sums_.at({chunk, static_cast<int>(pass) * lists_.parts_ + part})));
          next = nodes.values().back();
          if (part + 1 == lists_.parts_) written.out[pass] = nodes.compute_from(next);
          written.ends.push_back(static_cast<int>(program.nodes().size()) - begin);
        }
        builder.output(written.out[pass]);
      }
    }

    void write_update() {
      Program& program = add_program();
      Builder builder(program);
      RandomNodes nodes(builder, own_());
      nodes.add_states();
      nodes.compute_from(nodes.add_input("x"));
      nodes.write(in_own_order(lists_.update_sums_));
      builder.output(nodes.compute_from(nodes.values().back()));
    }

    /// Exchanges sums of different groups on a lane at random.
    RandomSums in_own_order(RandomSums sums) {
      for (std::vector<RandomSum>& of_lane : sums) {
        for (size_t i = 1; i < of_lane.size(); ++i) {
          const bool is_other_group = of_lane[i].axes != of_lane[i - 1].axes;
          if (is_other_group && own_() % 16 == 0) std::swap(of_lane[i], of_lane[i - 1]);
        }
      }
      return sums;
    }

    /// Exchanges parts of different frames at random, if they sum over different groups. At most
    /// one of them sends a message, and the one that comes earlier gets none, so that messages keep
    /// their order.
    std::vector<Turn> turns_in_own_order() {
      std::vector<Turn> turns = lists_.turns_[static_cast<size_t>(stage_)];
      for (size_t i = 1; i < turns.size(); ++i) {
        Turn &a = turns[i - 1], &b = turns[i];
        const bool is_one_frame = a.chunk == b.chunk && a.micro_batch == b.micro_batch;
        const bool are_both_last =
            (a.part + 1) % lists_.parts_ == 0 && (b.part + 1) % lists_.parts_ == 0;
        const bool may_get_message = b.part % lists_.parts_ == 0;
        if (is_one_frame || are_both_last || may_get_message || lists_.share_group(a, b)) continue;
        if (own_() % 2 == 0) std::swap(a, b);
      }
      return turns;
    }

    int program_of(int chunk) const { return chunk / lists_.stages_; }
    bool is_sent(int chunk, size_t way) const {
      return lists_.stages_ > 1 && (way == 0 ? chunk + 1 < lists_.chunks_ : chunk > 0);
    }
    /// The messages that this rank gets on their way, in their order.
    std::vector<Message> received(size_t way) const {
      const int back = way == 0 ? lists_.stages_ - 1 : 1;
      std::vector<Message> result;
      const auto sent = lists_.sent_.find({(stage_ + back) % lists_.stages_, way});
      if (sent == lists_.sent_.end()) return result;
      for (const Message& message : sent->second) {
        if (is_sent(message.chunk, way)) result.push_back(message);
      }
      return result;
    }
    static int receiver(const Message& message, size_t way) {
      return way == 0 ? message.chunk + 1 : message.chunk - 1;
    }
    /// Returns whether a frame is between two parts of a pass: its values cannot be held then.
    bool is_between_parts(int chunk, int micro_batch) const {
      const auto found = done_.find({chunk, micro_batch});
      return found != done_.end() && found->second % lists_.parts_ != 0;
    }
    ListMessage message(int chunk, int micro_batch, Value value, size_t way, bool sends) const {
      const int forward = (way == 0) == sends ? 1 : lists_.stages_ - 1;
      return {.hold = {.program = program_of(chunk), .micro_batch = micro_batch, .values = {value}},
              .sends = sends,
              .peer = stages_[static_cast<size_t>((stage_ + forward) % lists_.stages_)],
              .lane = way == 0 ? Lane::messages_forward : Lane::messages_backward};
    }
    void end(ListMessage message) {
      message.hold.begins = false;
      written_.list.emplace_back(message);
    }

    /// Posts the next receive of a way.
    void post_receive(size_t way) {
      const Message next = received(way)[posted_[way]++];
      const int chunk = receiver(next, way);
      const ListMessage message =
          this->message(chunk, next.micro_batch, chunks_.at(chunk).in[way], way, /*sends=*/false);
      written_.list.emplace_back(message);
      receives_[way][{chunk, next.micro_batch}] = message;
    }
    void await_send(size_t index) {
      end(sends_[index].message);
      sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(index));
    }

    /// Posts or awaits something at random.
    void move_messages() {
      const size_t way = own_() % 2;
      const std::vector<Message> messages = received(way);
      if (own_() % 2 == 0 && posted_[way] < messages.size()) {
        const Message& next = messages[posted_[way]];
        if (!is_between_parts(receiver(next, way), next.micro_batch)) post_receive(way);
      }
      if (own_() % 8 == 0 && !sends_.empty()) {
        const size_t index = own_() % sends_.size();
        const Message& of = sends_[index].of;
        if (!is_between_parts(of.chunk, of.micro_batch)) await_send(index);
      }
    }

    void take(const Turn& turn) {
      move_messages();
      const size_t pass = turn.part < lists_.parts_ ? 0 : 1;
      const int part = turn.part - static_cast<int>(pass) * lists_.parts_;
      const bool receives = pass == 0 ? turn.chunk > 0 : turn.chunk + 1 < lists_.chunks_;
      if (part == 0 && receives && lists_.stages_ > 1) {
        auto& receives = receives_[pass];
        const Message own{turn.chunk, turn.micro_batch};
        while (!receives.contains(own)) post_receive(pass);
        end(receives.at(own));
      }
      const Chunk& chunk = chunks_.at(turn.chunk);
      const auto index = static_cast<size_t>(turn.part);
      written_.list.emplace_back(Action{
          .segment = pass == 0 ? Segment::forward : Segment::backward,
          .program = program_of(turn.chunk),
          .micro_batch = turn.micro_batch,
          .steps = {.begin = part == 0 ? 0 : chunk.ends[index - 1], .end = chunk.ends[index]}});
      done_[{turn.chunk, turn.micro_batch}] = turn.part + 1;
      if (part + 1 < lists_.parts_ || !is_sent(turn.chunk, pass)) return;
      const ListMessage sent =
          message(turn.chunk, turn.micro_batch, chunk.out[pass], pass, /*sends=*/true);
      written_.list.emplace_back(sent);
      sends_.push_back({sent, {turn.chunk, turn.micro_batch}});
    }

    const RandomLists& lists_;
    int rank_;
    std::mt19937_64 own_;
    int stage_;
    std::vector<int> stages_;  // the ranks of the pipeline, by stage
    RandomRank written_;
    std::map<int, Chunk> chunks_;
    std::map<std::pair<int, int>, int> done_;     // by chunk and micro-batch: parts
    size_t posted_[2] = {};                       // by way: receives
    std::map<Message, ListMessage> receives_[2];  // by way, and what gets them
    std::vector<Posted> sends_;                   // which are not awaited
  };

  Mesh mesh_;
  uint64_t seed_;
  std::mt19937_64 shared_;
  int stages_, chunks_, micro_batches_, parts_;
  std::map<std::pair<int, int>, RandomSums> sums_;  // by chunk and part
  RandomSums update_sums_;
  std::vector<std::vector<Turn>> turns_;                         // by stage
  std::map<std::pair<int, size_t>, std::vector<Message>> sent_;  // by stage and way
};

}  // namespace tessera::testing
