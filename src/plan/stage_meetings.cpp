#include "plan/stage_meetings.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

std::optional<int> StageMeetings::calls_of(const Program& program, const Node& node) {
  const Mesh& mesh = program.mesh();
  const std::vector<std::vector<Axis>> groups = node.operation->group_axes();
  std::set<int> stages;
  for (const std::vector<Axis>& axes : groups) {
    if (std::ranges::find(axes, mesh.pipeline()) == axes.end()) continue;
    for (const int rank : mesh.group(program.rank(), axes, node.operation->group_stages())) {
      stages.insert(mesh.stage(rank));
    }
  }
  if (stages.size() < 2) return std::nullopt;
  std::vector<std::vector<int>> indices;
  for (const std::vector<Axis>& axes : groups) {
    std::vector<int>& of_group = indices.emplace_back();
    for (const Axis axis : axes) of_group.push_back(axis.index);
  }
  const auto [found, is_new] = numbers_.try_emplace({indices, stages, node.operation->lane()},
                                                    static_cast<int>(calls_.size()));
  if (is_new) calls_.push_back({.stages = stages, .arrived = {}});
  return found->second;
}

void StageMeetings::arrive(int calls, int stage, double time) {
  Calls& known = calls_[static_cast<size_t>(calls)];
  TESSERA_CHECK(known.stages.contains(stage), "stage {} makes a call of other stages", stage);
  known.arrived[stage].push_back(time);
}

std::optional<double> StageMeetings::begin(int calls, int stage) const {
  const Calls& known = calls_[static_cast<size_t>(calls)];
  const size_t last = known.arrived.at(stage).size() - 1;
  double begin = 0;
  for (const int other : known.stages) {
    const auto arrived = known.arrived.find(other);
    if (arrived == known.arrived.end() || arrived->second.size() <= last) return std::nullopt;
    begin = std::max(begin, arrived->second[last]);
  }
  return begin;
}

void StageMeetings::post(int step, const BoundaryMessage& message, const Channel& channel,
                         double time, double seconds) {
  Posts& posts = posts_[{step, message}];
  TESSERA_CHECK(!posts.moves, "{} were posted twice", words_for(message));
  if (!posts.first) {
    posts.first = time;
    return;
  }
  double& free = channel_free_[channel];
  const double begin = std::max({*posts.first, time, free});
  free = begin + seconds;
  posts.moves = {begin, free};
}

std::optional<StageMeetings::Moves> StageMeetings::moves(int step,
                                                         const BoundaryMessage& message) const {
  const auto posts = posts_.find({step, message});
  return posts == posts_.end() ? std::nullopt : posts->second.moves;
}

}  // namespace tessera
