#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/rank_groups.h"

namespace tessera {

/// Agreement among the ranks of a run between the steps of their programs: that a rank has failed,
/// or that the run ends. All ranks make the same calls in the same order. The calls are on
/// kControlLane, so their order among the programs' calls is free. The first rank has position 0 in
/// the group. In each call `own` is this rank's contribution.
class RankControl {
 public:
  /// Creates the control of a run of one rank, which agrees with itself.
  RankControl() = default;
  /// Creates the control of a run of several ranks. `groups` are the groups of this rank, and must
  /// outlive this object. `names` are the ranks' names in messages: "rank 3 (node1)".
  explicit RankControl(RankGroups& groups, std::vector<std::string> names = {})
      : world_(&groups.world(kControlLane)), groups_(&groups), names_(std::move(names)) {}

  bool is_first() const { return world_ == nullptr || world_->position() == 0; }
  bool several() const { return world_ != nullptr; }
  int rank() const {
    return world_ == nullptr ? 0 : world_->ranks()[static_cast<size_t>(world_->position())];
  }

  /// Returns the name of a rank in messages.
  std::string text(int rank) const;

  /// Returns a copy that names a longer piece of work, such as "the save of step 12", in errors
  /// about ranks that do not come in time. All ranks must give the same text.
  RankControl during(std::string work) const;

  /// Returns a copy for calls of gather() among the ranks of this rank's pipeline stage alone,
  /// which are in ascending order. Its calls are on `lane`. On another lane than kControlLane they
  /// end with the work of the programs (attempt_work()).
  RankControl within_stage(std::string_view lane) const;

  /// Returns whether `own` is true on any rank.
  bool any(bool own) const;
  /// Returns the text of the first rank that has one; none if no rank has one.
  std::optional<std::string> any_text(const std::optional<std::string>& own) const;
  /// Returns the text of the rank with the lowest number; of several such ranks, the text of the
  /// first. Ranks without a text do not count. Returns none if no rank has a text.
  std::optional<std::string> lowest_text(int64_t number,
                                         const std::optional<std::string>& own) const;
  /// Returns the numbers of all ranks, in rank order. All ranks give equally many.
  std::vector<uint64_t> gather(std::span<const uint64_t> own) const;
  /// Returns the texts of all ranks, in rank order, on the first rank, and none on the others.
  std::vector<std::string> texts_for_first(const std::string& own) const;
  void wait() const;  ///< for all ranks

  /// Returns the failure of the first rank that has one; none if no rank has one. Puts the rank's
  /// name before it, unless all ranks have the same failure.
  std::optional<std::string> first_failure(const std::optional<std::string>& own) const;

  /// Runs an action on every rank. The action may not communicate with other ranks. Returns
  /// first_failure() of the errors that actions threw; none if all succeeded.
  template <typename Action>
  std::optional<std::string> attempt(Action&& action) const {
    return first_failure(failure_of(std::forward<Action>(action)));
  }

  /// Runs an action on every rank. The action may communicate with other ranks on all lanes but
  /// kControlLane. If it throws Error on some ranks, the others do not wait for them: the work of
  /// all ranks ends (RankGroups::end_work()), and programs cannot be run any more. Returns the
  /// error of the first rank whose action threw; none if all succeeded. If that rank failed because
  /// of another rank, the error names the other one.
  template <typename Action>
  std::optional<std::string> attempt_work(Action&& action) const {
    const std::optional<std::string> failure = failure_of(std::forward<Action>(action));
    if (failure && groups_ != nullptr) groups_->end_work(*failure);
    return any_text(failure);
  }

  /// Runs an action as attempt() does. If it throws Error on any rank, all ranks throw Error with
  /// the text of first_failure().
  template <typename Action>
  void together(Action&& action) const {
    if (!several()) return action();
    if (const auto failure = attempt(std::forward<Action>(action))) throw Error("{}", *failure);
  }

  /// Runs an action on the first rank alone, for all ranks. If it throws Error, all ranks throw it.
  template <typename Action>
  void on_first(Action&& action) const {
    if (!several()) return action();
    std::optional<std::string> failure;
    if (is_first()) failure = failure_of(std::forward<Action>(action));
    if (failure = any_text(failure); failure) throw Error("{}", *failure);
  }

 private:
  /// Returns the text of the Error that the action throws; none otherwise. Other exceptions pass.
  template <typename Action>
  static std::optional<std::string> failure_of(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return std::nullopt;
  }

  /// Returns the name of a call for messages, with the work of during().
  std::string named(std::string_view call) const;

  Communicator* world_ = nullptr;
  RankGroups* groups_ = nullptr;
  std::vector<std::string> names_;  // by rank
  std::string work_;                // see during(); empty without it
};

}  // namespace tessera
