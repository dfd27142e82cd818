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
                   const MemoryPlan& plan, std::span<const ListEntry> list)
    : programs_(programs),
      lifetimes_(lifetimes),
      plan_(plan),
      frames_(programs.size()),
      spans_(programs.size()) {
  std::map<MicroBatch, size_t> last_entries;
  for (size_t i = 0; i < list.size(); ++i) last_entries[micro_batch_of(list[i])] = i;
  FramesInFlight in_flight(programs, plan.programs);
  for (size_t i = 0; i < list.size(); ++i) {
    const MicroBatch of = micro_batch_of(list[i]);
    TESSERA_CHECK(of.program >= 0 && of.program < std::ssize(programs),
                  "an entry of program {} of {}", of.program, programs.size());
    const int frame = take_frame(of.program, of.micro_batch);
    if (const auto* const action = std::get_if<Action>(&list[i])) {
      occur(in_flight.begin(*action, frame));
      in_flight.end(*action, frame);
    } else if (auto situation = in_flight.follow(std::get<Hold>(list[i]), frame)) {
      occur(*std::move(situation));
    }
    if (last_entries.at(of) == i) taken_.erase({of.program, frame});
  }
  in_flight.expect_nothing_held();
  if (plan.outlasting.empty()) return;
  // The list runs again and again: what is at work at its end is so at its beginning.
  StepsAtWork steps(plan.outlasting, plan.late_waits);
  std::set<StepAtWork> at_beginning;
  do {
    at_beginning = steps.all();
  } while (note_steps_at_work(list, steps) || steps.all() != at_beginning);
  note_late_intervals();
}

bool Timeline::note_steps_at_work(std::span<const ListEntry> list, StepsAtWork& steps) {
  bool is_any_new = false;
  FramesInFlight in_flight(programs_, plan_.programs);
  for (const ListEntry& entry : list) {
    if (const auto* const action = std::get_if<Action>(&entry)) {
      is_any_new = follow(*action, in_flight, steps) || is_any_new;
      continue;
    }
    const Hold& hold = std::get<Hold>(entry);
    const std::optional<Situation> situation =
        in_flight.follow(hold, frame_of(hold.program, hold.micro_batch));
    if (!situation) continue;
    std::map<StepAtWork, int>& noted = occur(*situation).at_work;
    for (const StepAtWork step : steps.all()) {
      is_any_new = noted.try_emplace(step, 0).second || is_any_new;
    }
  }
  return is_any_new;
}

bool Timeline::follow(const Action& action, FramesInFlight& in_flight, StepsAtWork& steps) {
  const int frame = frame_of(action.program, action.micro_batch);
  const Situation situation = in_flight.begin(action, frame);
  for (const StepAtWork step :
       steps.awaited_before(action.program, frame, situation.segment_index, situation.begin_step)) {
    steps.end(step);
  }
  in_flight.end(action, frame);
  const auto [followed, is_new_course] = followed_.try_emplace({situation, steps.all()});
  if (!is_new_course) {
    steps.set_all(followed->second);
    return false;
  }
  std::map<StepAtWork, int> last_steps;  // of those at work at the beginning
  for (const StepAtWork step : steps.all()) {
    last_steps[step] = std::max(situation.end_step - situation.begin_step - 1, 0);
  }
  const std::vector<int>& nodes = lifetimes_[static_cast<size_t>(action.program)]
                                      .nodes[static_cast<size_t>(situation.segment_index)];
  for (int step = situation.begin_step; step < situation.end_step; ++step) {
    const Lane lane = programs_[static_cast<size_t>(action.program)]
                          ->nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])]
                          .operation->lane();
    if (lane == Lane::compute) {
      for (const StepAtWork awaited :
           steps.awaited_by(action.program, frame, situation.segment_index, step, lane)) {
        steps.end(awaited);
      }
      steps.end_known_at(action.program, frame, situation.segment_index, step);
      for (auto& [other, last] : last_steps) {
        // The caller writes inputs before the first step awaits anything.
        const int before = std::max(step - situation.begin_step - 1, 0);
        if (!steps.all().contains(other)) last = std::min(last, before);
      }
    }
    steps.begin(action.program, frame, situation.segment_index, step);
  }
  if (situation.end_step == std::ssize(nodes)) {
    for (const StepAtWork step :
         steps.awaited_by_end(action.program, frame, situation.segment_index)) {
      steps.end(step);
    }
  }
  followed->second = steps.all();
  bool is_any_new = false;
  std::map<StepAtWork, int>& noted = occur(situation).at_work;
  for (const auto& [step, last] : last_steps) {
    const auto [found, is_new] = noted.try_emplace(step, last);
    is_any_new = is_any_new || is_new || last > found->second;
    found->second = std::max(found->second, last);
  }
  return is_any_new;
}

std::map<Situation, std::set<StepAtWork>> Timeline::situations() const {
  std::map<Situation, std::set<StepAtWork>> result;
  for (const auto& [situation, occurrence] : situations_) {
    std::set<StepAtWork>& at_work = result[situation];
    for (const auto& [step, last] : occurrence.at_work) at_work.insert(step);
  }
  return result;
}

int Timeline::frame_of(int program, int micro_batch) const {
  return frames_[static_cast<size_t>(program)].at(micro_batch);
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

Timeline::Occurrence& Timeline::occur(Situation situation) {
  const auto [found, is_new] = situations_.try_emplace(std::move(situation));
  if (!is_new) return found->second;
  found->second.period = static_cast<int>(periods_.size());
  add_period(found->first);
  return found->second;
}

void Timeline::add_period(const Situation& situation) {
  // A block is in use for at least one step, even in a segment without nodes.
  const Period period{.program = situation.program,
                      .segment_index = situation.segment_index,
                      .begin_step = situation.begin_step,
                      .begin = steps_,
                      .steps = std::max(situation.end_step - situation.begin_step, 1)};
  periods_.push_back(period);
  steps_ += period.steps;
  for (const WaitingFrame& frame : situation.waiting) {
    span_now({frame.program, frame.frame}).next = frame.next;
  }
  for (const HeldValue& held : situation.held) {
    const int block =
        lifetimes_[static_cast<size_t>(held.program)].block_of[static_cast<size_t>(held.value)];
    span_now({held.program, held.frame}).held.push_back(block);
  }
  if (situation.program >= 0) {
    FrameSpan& span = span_now({situation.program, situation.frame});
    span.running = situation.segment_index;
    span.begin_step = situation.begin_step;
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
      append_running(result, span, block.first, block.last);
    } else if (span.next && block.first < *span.next && *span.next <= block.last) {
      append(result, {span.begin, span.end});
    }
  }
  return result;
}

std::vector<Interval> Timeline::step_intervals(Moment first, Moment last, FrameKey key) const {
  std::vector<Interval> result;
  for (const FrameSpan& span :
       spans_[static_cast<size_t>(key.program)][static_cast<size_t>(key.frame)]) {
    if (span.running == first.segment) {
      append_running(result, span, first, last);
    } else if (span.next && first < *span.next && *span.next <= last) {
      append(result, {span.begin, span.end});
    }
  }
  return result;
}

void Timeline::append_running(std::vector<Interval>& intervals, const FrameSpan& span, Moment first,
                              Moment last) {
  const auto position = [&](Moment moment) {  // of a moment of the segment that runs
    return span.begin + moment.step - span.begin_step;
  };
  Interval interval{span.begin, span.end};
  if (span.running < first.segment || span.running > last.segment) return;
  if (span.running == first.segment) interval.begin = std::max(interval.begin, position(first));
  if (span.running == last.segment) interval.end = std::min(interval.end, position(last) + 1);
  if (interval.begin < interval.end) append(intervals, interval);
}

const std::vector<Interval>& Timeline::late_intervals(StepAtWork step) const {
  static const std::vector<Interval> none;
  const auto found = late_intervals_.find(step);
  return found == late_intervals_.end() ? none : found->second;
}

void Timeline::note_late_intervals() {
  std::map<int, const Occurrence*> by_begin;  // of their periods
  for (const auto& [situation, occurrence] : situations_) {
    by_begin[periods_[static_cast<size_t>(occurrence.period)].begin] = &occurrence;
  }
  for (const auto& [begin, occurrence] : by_begin) {
    for (const auto& [step, last] : occurrence->at_work) {
      append(late_intervals_[step], {begin, begin + last + 1});
    }
  }
}

}  // namespace tessera
