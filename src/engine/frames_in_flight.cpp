#include "engine/frames_in_flight.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {

int FramesInFlight::segment_index(const Action& action) const {
  const std::vector<Segment>& order = memory(action.program).order;
  const auto found = std::ranges::find(order, action.segment);
  TESSERA_CHECK(found != order.end(), "the segment {} of program {} was not planned",
                word(action.segment), action.program);
  return static_cast<int>(found - order.begin());
}

int FramesInFlight::step_count(const Action& action) const {
  const auto segment = static_cast<size_t>(segment_index(action));
  return static_cast<int>(memory(action.program).nodes[segment].size());
}

const std::string& FramesInFlight::name(int program, int value) const {
  return programs_[static_cast<size_t>(program)]->info(Value{value}).name;
}

bool FramesInFlight::holds_values_of(FrameKey key) const {
  const auto first = held_.lower_bound({key.program, key.frame, 0});
  return first != held_.end() && FrameKey{first->first.program, first->first.frame} == key;
}

void FramesInFlight::begin_anew(FrameKey key) {
  const auto first = held_.lower_bound({key.program, key.frame, 0});
  const auto last = held_.lower_bound({key.program, key.frame + 1, 0});
  for (auto held = first; held != last; ++held) {
    TESSERA_CHECK(held->second == HoldState::arrived,
                  "frame {} of program {} begins anew, but its value {} is held", key.frame,
                  key.program, name(key.program, held->first.value));
  }
  held_.erase(first, last);
}

void FramesInFlight::note_situation(std::optional<FrameKey> running) {
  Situation& result = situation_;
  result.program = result.frame = result.segment_index = -1;
  result.begin_step = result.end_step = 0;
  result.waiting.clear();
  result.held.clear();
  for (const auto& [key, frame] : frames_) {
    const bool waits =
        frame.next > Moment{} && frame.next.segment < std::ssize(memory(key.program).order);
    if (waits && key != running) result.waiting.push_back({key.program, key.frame, frame.next});
  }
  for (const auto& [value, state] : held_) result.held.push_back(value);
}

bool FramesInFlight::begins_frame(const Action& action, int frame) const {
  const auto found = frames_.find({action.program, frame});
  return segment_index(action) == 0 && action.steps.begin == 0 &&
         (found == frames_.end() || found->second.next > Moment{});
}

const Situation& FramesInFlight::begin(const Action& action, int frame) {
  const FrameKey key{action.program, frame};
  const int segment = segment_index(action);
  const auto found = frames_.find(key);
  if (begins_frame(action, frame)) {
    begin_anew(key);
  } else {
    const Moment expected{segment, action.steps.begin};
    TESSERA_CHECK(
        found != frames_.end() && found->second.next == expected &&
            found->second.micro_batch == action.micro_batch,
        "step {} of the segment {} of micro-batch {} of program {} does not follow the one before",
        action.steps.begin, word(action.segment), action.micro_batch, action.program);
  }
  TESSERA_CHECK(action.steps.begin == 0 || action.steps.begin < step_count(action),
                "an action of program {} begins at step {} of {}", action.program,
                action.steps.begin, step_count(action));
  for (const Value input : memory(key.program).inputs[static_cast<size_t>(segment)]) {
    const auto held = held_.find({key.program, key.frame, input.id});
    if (held == held_.end()) continue;
    TESSERA_CHECK(held->second == HoldState::arrived,
                  "the segment {} of micro-batch {} of program {} uses {}, which is still held",
                  word(action.segment), action.micro_batch, key.program,
                  name(key.program, input.id));
    held_.erase(held);
  }
  if (found != frames_.end()) running_ = frames_.extract(found);
  readable_.reset();
  note_situation(key);
  Situation& result = situation_;
  result.program = key.program;
  result.frame = key.frame;
  result.segment_index = segment;
  result.begin_step = action.steps.begin;
  result.end_step = std::min(action.steps.end, step_count(action));
  return result;
}

void FramesInFlight::end(const Action& action, int frame) {
  const FrameKey key{action.program, frame};
  const int segment = segment_index(action);
  const bool ends_segment = action.steps.end >= step_count(action);
  const Moment next = ends_segment ? Moment{segment + 1, 0} : Moment{segment, action.steps.end};
  if (next.segment < std::ssize(memory(key.program).order) || holds_values_of(key)) {
    const Frame waiting{action.micro_batch, next};
    if (running_) {
      running_.key() = key;
      running_.mapped() = waiting;
      frames_.insert(std::move(running_));
    } else {
      frames_[key] = waiting;
    }
  }
  if (ends_segment) readable_ = {key, action.micro_batch, segment};
}

std::optional<Situation> FramesInFlight::follow(const Hold& hold, int frame) {
  const FrameKey key{hold.program, frame};
  const auto found = frames_.find(key);
  TESSERA_CHECK(found == frames_.end() || found->second.micro_batch == hold.micro_batch,
                "a hold of micro-batch {} of program {} where micro-batch {} has the frame",
                hold.micro_batch, hold.program, found->second.micro_batch);
  TESSERA_CHECK(found == frames_.end() || found->second.next.step == 0,
                "a hold of micro-batch {} of program {} between two parts of a segment",
                hold.micro_batch, hold.program);
  bool takes_memory = false;
  for (const Value value : hold.values) {
    if (hold.begins) {
      begin_hold(hold, key, value);
      takes_memory |= held_.at({key.program, key.frame, value.id}) == HoldState::input;
    } else {
      end_hold(hold, key, value);
    }
  }
  if (!takes_memory) return {};
  readable_.reset();
  note_situation({});
  return situation_;
}

void FramesInFlight::begin_hold(const Hold& hold, FrameKey key, Value value) {
  const ValueInfo& info = programs_[static_cast<size_t>(key.program)]->info(value);
  const SegmentRange range = memory(key.program).ranges[static_cast<size_t>(value.id)];
  TESSERA_CHECK(range.first >= 0,
                "{} of program {} cannot be held: it is kept, or no node makes it", info.name,
                hold.program);
  const HeldValue held{key.program, key.frame, value.id};
  TESSERA_CHECK(!held_.contains(held), "{} of micro-batch {} of program {} is held already",
                info.name, hold.micro_batch, hold.program);
  const auto found = frames_.find(key);
  const bool is_early_input =
      info.kind == ValueKind::input &&
      range.first >= (found == frames_.end() ? 0 : found->second.next.segment);
  if (is_early_input) {
    frames_.try_emplace(key, Frame{.micro_batch = hold.micro_batch});
    held_[held] = HoldState::input;
    return;
  }
  TESSERA_CHECK(
      is_in_memory(hold, key, value),
      "{} of micro-batch {} of program {} cannot be held here: it is neither an input that "
      "is not used yet nor an output of the segment before",
      info.name, hold.micro_batch, hold.program);
  held_[held] = HoldState::output;
  // The frame's last segment may have been the one before.
  frames_.try_emplace(
      key, Frame{hold.micro_batch, {static_cast<int>(std::ssize(memory(key.program).order)), 0}});
}

bool FramesInFlight::is_in_memory(const Hold& hold, FrameKey key, Value output) const {
  if (!programs_[static_cast<size_t>(key.program)]->is_output(output)) return false;
  const SegmentRange range = memory(key.program).ranges[static_cast<size_t>(output.id)];
  if (readable_ && readable_->key == key && readable_->micro_batch == hold.micro_batch &&
      readable_->segment == range.first) {
    return true;
  }
  const auto found = frames_.find(key);
  return found != frames_.end() && range.first < found->second.next.segment &&
         found->second.next.segment <= range.last;
}

void FramesInFlight::end_hold(const Hold& hold, FrameKey key, Value value) {
  const auto held = held_.find({key.program, key.frame, value.id});
  TESSERA_CHECK(held != held_.end() && held->second != HoldState::arrived,
                "{} of micro-batch {} of program {} is not held", name(hold.program, value.id),
                hold.micro_batch, hold.program);
  if (held->second == HoldState::input) {
    held->second = HoldState::arrived;
    return;
  }
  held_.erase(held);
  const auto frame = frames_.find(key);
  const bool is_done = frame->second.next.segment == std::ssize(memory(key.program).order);
  if (is_done && !holds_values_of(key)) frames_.erase(frame);
}

void FramesInFlight::give_up() {
  frames_.clear();
  held_.clear();
  readable_.reset();
}

void FramesInFlight::expect_nothing_held() const {
  for (const auto& [value, state] : held_) {
    TESSERA_CHECK(state == HoldState::arrived, "the hold of {} of program {} does not end",
                  name(value.program, value.value), value.program);
    TESSERA_CHECK(state != HoldState::arrived, "{} of program {} was held, but nothing uses it",
                  name(value.program, value.value), value.program);
  }
}

}  // namespace tessera
