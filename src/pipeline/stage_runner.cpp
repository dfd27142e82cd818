#include "pipeline/stage_runner.h"

#include <array>
#include <set>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "comm/communicator.h"

namespace tessera {
void StageRunner::run(const StageList& list,
                      const std::function<void(const StageAction&)>& before) {
  if (!joined_) join_lanes(list);
  joined_ = true;
  try {
    for (const StageEntry& entry : list.entries) {
      std::visit(
          [&](const auto& known) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(known)>, StageAction>) {
              follow(known, before);
            } else {
              follow(known);
            }
          },
          entry);
    }
  } catch (...) {
    posted_.clear();  // withdraws the messages: their memory may be freed from here on
    throw;
  }
}

void StageRunner::set_trace(Trace* trace) {
  trace_ = trace;
  if (trace_ != nullptr) timed_.clear();
}

template <typename Work>
void StageRunner::timed(const ScheduleEntry& entry, Work&& work) {
  if (trace_ == nullptr) return work();
  const size_t index = timed_.size();
  timed_.push_back({.entry = entry});
  const auto record = [this, index](double start, double duration) {
    timed_[index].start = start;
    timed_[index].duration = duration;
  };
  if (TraceTimer* const timer = executor_.trace_timer()) {
    timer->begin(*executor_.stream());
    work();
    timer->end(*executor_.stream(), record);
  } else {
    const double start = trace_->now();
    work();
    record(start, trace_->now() - start);
  }
}

void StageRunner::follow(const StageAction& entry,
                         const std::function<void(const StageAction&)>& before) {
  timed(entry.action, [&] {
    before(entry);
    for (const Action& action : entry.runs()) executor_.run(action);
  });
}

void StageRunner::follow(const StageMessage& entry) {
  timed(MessageEntry{entry.call, entry.message},
        [&] { entry.hold.begins ? post(entry) : wait(entry); });
}

void StageRunner::post(const StageMessage& entry) {
  executor_.hold(entry.hold);
  const bool sends = entry.call == MessageCall::post_send;
  Communicator& lane = lane_of(executor_, entry.message.kind);
  std::vector<PostedMessage>& posted = posted_[{entry.message, sends}];
  for (size_t i = 0; i < entry.hold.values.size(); ++i) {
    const std::string name = name_of(entry.message, i);
    const Tensor& tensor =
        executor_.tensor(entry.hold.values[i], entry.hold.program, entry.hold.micro_batch);
    if (trace_ != nullptr && sends) timed_.back().bytes += static_cast<double>(tensor.bytes());
    posted.push_back(sends ? lane.post_send(name, entry.peer, tensor, device_call())
                           : lane.post_receive(name, entry.peer, tensor, device_call()));
  }
}

void StageRunner::wait(const StageMessage& entry) {
  const auto posted = posted_.find({entry.message, entry.call == MessageCall::wait_send});
  TESSERA_CHECK(posted != posted_.end(), "{} were awaited, but not posted",
                words_for(entry.message));
  Communicator& lane = lane_of(executor_, entry.message.kind);
  for (PostedMessage& message : posted->second) lane.wait(message, device_call());
  posted_.erase(posted);
  executor_.hold(entry.hold);
}

void StageRunner::follow(const KeptBoundary& entry) { executor_.hold(entry.hold); }

void StageRunner::follow(const PassedBoundary& entry) {
  executor_.hold(entry.to);
  for (size_t i = 0; i < entry.to.values.size(); ++i) {
    executor_.copy(
        executor_.tensor(entry.from.values[i], entry.from.program, entry.from.micro_batch),
        executor_.tensor(entry.to.values[i], entry.to.program, entry.to.micro_batch));
  }
  executor_.hold(entry.from);
  executor_.hold(end_of(entry.to));
}

void StageRunner::join_lanes(const StageList& list) {
  const Mesh& mesh = executor_.program(0).mesh();
  const std::array axes{mesh.pipeline()};
  if (mesh.size(axes[0]) == 1) return;
  std::set<int> peers;
  for (const StageEntry& entry : list.entries) {
    if (const auto* const message = std::get_if<StageMessage>(&entry)) peers.insert(message->peer);
  }
  for (const Lane lane : {Lane::messages_forward, Lane::messages_backward}) {
    executor_.runtime().groups().connect_posts(axes, word(lane),
                                               std::vector<int>(peers.begin(), peers.end()));
  }
}

Communicator& lane_of(const Executor& executor, BoundaryKind kind) {
  const std::array axes{executor.program(0).mesh().pipeline()};
  return executor.runtime().groups().over(axes, word(message_lane(kind)));
}

std::string name_of(const BoundaryMessage& message, size_t value) {
  return fmt::format("{}, value {}", words_for(message), value);
}

}  // namespace tessera
