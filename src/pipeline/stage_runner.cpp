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

void StageRunner::follow(const StageAction& entry,
                         const std::function<void(const StageAction&)>& before) {
  before(entry);
  executor_.run(entry.run);
}

void StageRunner::follow(const StageMessage& entry) {
  const bool sends = entry.call == MessageCall::post_send || entry.call == MessageCall::wait_send;
  const Side side{entry.message, sends};
  Communicator& lane = lane_of(entry.message.kind);
  if (!entry.hold.begins) {
    const auto posted = posted_.find(side);
    TESSERA_CHECK(posted != posted_.end(), "{} were awaited, but not posted",
                  words_for(entry.message));
    const Trace::Span span(trace_, sends ? "wait_send" : "wait_receive", "messages");
    for (PostedMessage& message : posted->second) lane.wait(message, device_call());
    posted_.erase(posted);
    executor_.hold(entry.hold);
    return;
  }
  executor_.hold(entry.hold);
  std::vector<PostedMessage>& posted = posted_[side];
  for (size_t i = 0; i < entry.hold.values.size(); ++i) {
    const std::string name = fmt::format("{}, value {}", words_for(entry.message), i);
    const Tensor& tensor =
        executor_.tensor(entry.hold.values[i], entry.hold.program, entry.hold.micro_batch);
    posted.push_back(sends ? lane.post_send(name, entry.peer, tensor, device_call())
                           : lane.post_receive(name, entry.peer, tensor, device_call()));
  }
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
  for (const std::string_view lane : {kActivationsLane, kGradientsLane}) {
    executor_.runtime().groups().connect_posts(axes, lane,
                                               std::vector<int>(peers.begin(), peers.end()));
  }
}

/// Returns the communicator of this rank's pipeline for a kind of message. A position in it is a
/// stage.
Communicator& StageRunner::lane_of(BoundaryKind kind) {
  const std::array axes{executor_.program(0).mesh().pipeline()};
  return executor_.runtime().groups().over(
      axes, kind == BoundaryKind::activations ? kActivationsLane : kGradientsLane);
}

}  // namespace tessera
