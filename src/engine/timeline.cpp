#include "engine/timeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

/// A micro-batch in a program.
struct MicroBatch {
  int program = 0;
  int micro_batch = 0;
  auto operator<=>(const MicroBatch&) const = default;  // NOLINT(modernize-use-nullptr)
};

MicroBatch micro_batch_of(const ListEntry& entry) {
  return std::visit(
      [](const auto& any) {
        return MicroBatch{.program = any.program, .micro_batch = any.micro_batch};
      },
      entry);
}

/// Adds an interval behind the others, as a part of the last one if they touch.
void append(std::vector<Interval>& intervals, Interval added) {
  if (!intervals.empty() && intervals.back().end == added.begin) {
    intervals.back().end = added.end;
  } else {
    intervals.push_back(added);
  }
}

}  // namespace

Timeline::Timeline(std::span<const Program* const> programs, std::span<const Lifetimes> lifetimes,
                   std::span<const ProgramMemory> memory, std::span<const ListEntry> list)
    : lifetimes_(lifetimes), frames_(programs.size()), spans_(programs.size()) {
  std::map<MicroBatch, size_t> last_entries;
  for (size_t i = 0; i < list.size(); ++i) last_entries[micro_batch_of(list[i])] = i;
  FramesInFlight in_flight(programs, memory);
  for (size_t i = 0; i < list.size(); ++i) {
    const MicroBatch of = micro_batch_of(list[i]);
    TESSERA_CHECK(of.program >= 0 && of.program < std::ssize(programs),
                  "an entry of program {} of {}", of.program, programs.size());
    const int frame = take_frame(of.program, of.micro_batch);
    if (const auto* const action = std::get_if<Action>(&list[i])) {
      add_period(in_flight.begin(*action, frame));
      in_flight.end(*action, frame);
    } else if (auto situation = in_flight.follow(std::get<Hold>(list[i]), frame)) {
      add_period(*std::move(situation));
    }
    if (last_entries.at(of) == i) taken_.erase({of.program, frame});
  }
  in_flight.expect_nothing_held();
}

int Timeline::take_frame(int program, int micro_batch) {
  const auto program_index = static_cast<size_t>(program);
  const auto [found, is_new] = frames_[program_index].try_emplace(micro_batch, 0);
  if (!is_new) return found->second;
  int& frame = found->second;
  while (taken_.contains({program, frame})) ++frame;
  taken_.insert({program, frame});
  auto& spans = spans_[program_index];
  spans.resize(std::max(spans.size(), static_cast<size_t>(frame) + 1));
  return frame;
}

void Timeline::add_period(Situation added) {
  const auto [found, is_new] = situations_.insert(std::move(added));
  if (!is_new) return;
  const Situation& situation = *found;
  Period period{
      .program = situation.program, .segment_index = situation.segment_index, .begin = steps_};
  if (situation.program >= 0) {
    const auto& nodes = lifetimes_[static_cast<size_t>(situation.program)]
                            .nodes[static_cast<size_t>(situation.segment_index)];
    // A block is in use for at least one step, even in a segment without nodes.
    period.steps = std::max(static_cast<int>(nodes.size()), 1);
  }
  periods_.push_back(period);
  steps_ += period.steps;
  for (const WaitingFrame& frame : situation.waiting) {
    span_now({frame.program, frame.frame}).segments_done = frame.segments_done;
  }
  for (const HeldValue& held : situation.held) {
    const int block =
        lifetimes_[static_cast<size_t>(held.program)].block_of[static_cast<size_t>(held.value)];
    span_now({held.program, held.frame}).held.push_back(block);
  }
  if (situation.program >= 0) {
    span_now({situation.program, situation.frame}).running = situation.segment_index;
  }
}

Timeline::FrameSpan& Timeline::span_now(FrameKey key) {
  std::vector<FrameSpan>& spans =
      spans_[static_cast<size_t>(key.program)][static_cast<size_t>(key.frame)];
  const Period& now = periods_.back();
  if (!spans.empty() && spans.back().begin == now.begin) return spans.back();
  // The span before is complete, so it may join the one before it.
  if (spans.size() > 1 && spans.back().continues(spans[spans.size() - 2])) {
    spans[spans.size() - 2].end = spans.back().end;
    spans.pop_back();
  }
  return spans.emplace_back(
      FrameSpan{.begin = now.begin, .end = now.begin + now.steps, .held = {}});
}

std::vector<Interval> Timeline::block_intervals(int block_index, FrameKey key) const {
  const FrameBlock& block =
      lifetimes_[static_cast<size_t>(key.program)].blocks[static_cast<size_t>(block_index)];
  std::vector<Interval> result;
  for (const FrameSpan& span :
       spans_[static_cast<size_t>(key.program)][static_cast<size_t>(key.frame)]) {
    const int segment = span.running;
    if (std::ranges::find(span.held, block_index) != span.held.end()) {
      append(result, {span.begin, span.end});
    } else if (segment >= 0) {
      if (segment < block.first.segment || segment > block.last.segment) continue;
      append(result, {segment == block.first.segment ? span.begin + block.first.step : span.begin,
                      segment == block.last.segment ? span.begin + block.last.step + 1 : span.end});
    } else if (block.first.segment < span.segments_done &&
               span.segments_done <= block.last.segment) {
      append(result, {span.begin, span.end});
    }
  }
  return result;
}

std::vector<Interval> Timeline::step_intervals(Moment first, Moment last, FrameKey key) const {
  std::vector<Interval> result;
  for (const FrameSpan& span :
       spans_[static_cast<size_t>(key.program)][static_cast<size_t>(key.frame)]) {
    if (span.running != first.segment) continue;
    append(result, {span.begin + first.step, span.begin + last.step + 1});
  }
  return result;
}

}  // namespace tessera
