#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/schedule.h"
#include "program/program.h"

namespace tessera {

/// Where the stages of a predicted step meet: at messages, and at calls that ranks of several
/// stages make. Each stage tells when it comes to one. Once all have told, the time is known at
/// which it begins. Times are seconds.
class StageMeetings {
 public:
  /// The time in which a message moves.
  struct Moves {
    double begin = 0;
    double end = 0;
  };

  /// Returns the number of the calls that a node's operation makes over these groups on its lane;
  /// none if the ranks that it calls are all of one stage.
  std::optional<int> calls_of(const Program& program, const Node& node);

  /// Notes that a stage comes to its next call of that number.
  void arrive(int calls, int stage, double time);
  /// Returns when the last call that a stage has come to begins: when the last stage comes to it.
  /// None if a stage has not come to it yet.
  std::optional<double> begin(int calls, int stage) const;

  /// Notes that a side posts a message of a step, which takes so many seconds. Each side posts the
  /// messages of a channel in their order.
  void post(int step, const BoundaryMessage& message, const Channel& channel, double time,
            double seconds);
  /// Returns when a message moves: once both sides have posted it, and after the messages of its
  /// channel before it. None if a side has not posted it yet.
  std::optional<Moves> moves(int step, const BoundaryMessage& message) const;

 private:
  struct Calls {
    std::set<int> stages;                        // that make them
    std::map<int, std::vector<double>> arrived;  // by stage: the time of each call
  };
  struct Posts {
    std::optional<double> first;  // when the first side posted it
    std::optional<Moves> moves;
  };
  /// The indices of the groups' axes, the stages, and the lane.
  using CallsKey = std::tuple<std::vector<std::vector<int>>, std::set<int>, Lane>;

  std::map<CallsKey, int> numbers_;
  std::vector<Calls> calls_;
  std::map<std::pair<int, BoundaryMessage>, Posts> posts_;  // by step and message
  std::map<Channel, double> channel_free_;                  // when the last message has moved
};

}  // namespace tessera
