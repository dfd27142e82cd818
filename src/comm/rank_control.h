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

/// Agreement among the ranks of a run between the steps of their programs, on a lane of its own:
/// that one of them failed, or that the run ends. All ranks make the same calls in the same order.
/// The first rank is position 0 of the group.
class RankControl {
 public:
  /// Creates the control of a run of one rank, which agrees with itself.
  RankControl() = default;
  /// Creates the control of a run of several ranks. `groups` are those of this rank, and must
  /// outlive this object. `names` are the ranks' names in messages: "rank 3 (node1)". Without them
  /// a rank is called "rank 3".
  explicit RankControl(RankGroups& groups, std::vector<std::string> names = {})
      : world_(&groups.world(kControlLane)), groups_(&groups), names_(std::move(names)) {}

  bool first() const { return world_ == nullptr || world_->position() == 0; }
  bool several() const { return world_ != nullptr; }
  /// Returns this rank.
  int rank() const {
    return world_ == nullptr ? 0 : world_->ranks()[static_cast<size_t>(world_->position())];
  }

  /// Returns the name of a rank in messages.
  std::string text(int rank) const;

  /// Returns the same control for a longer piece of work: "the save of step 12". If a rank does not
  /// come in time, the error names the work. All ranks must give the same words.
  RankControl during(std::string what) const;

  /// Returns whether `own` is true on any rank.
  bool any(bool own) const;
  /// Returns the text of the first rank that has one; none if no rank has one.
  std::optional<std::string> any_text(const std::optional<std::string>& own) const;
  /// Returns the text of the rank with the lowest number, and of several such ranks that of the
  /// first. Ranks without a text do not count; none if no rank has one.
  std::optional<std::string> lowest_text(int64_t number,
                                         const std::optional<std::string>& own) const;
  /// Returns the number of the first rank.
  int tell(int number) const;
  /// Returns the numbers of all ranks, in rank order. All ranks give equally many.
  std::vector<uint64_t> gather(std::span<const uint64_t> own) const;
  /// Returns the texts of all ranks, in rank order, on the first rank. Returns none on the others.
  std::vector<std::string> texts_for_first(const std::string& own) const;
  /// Waits for all ranks.
  void wait() const;

  /// Returns the failure of the first rank that has one, after that rank's name unless all ranks
  /// have the same failure; none if no rank has one.
  std::optional<std::string> first_failure(const std::optional<std::string>& own) const;

  /// Runs an action on every rank. The action may not communicate with other ranks. Returns the
  /// error of the first rank whose action threw Error, in the words of first_failure(); none if all
  /// succeeded.
  template <typename Action>
  std::optional<std::string> attempt(Action&& action) const {
    return first_failure(failure_of(std::forward<Action>(action)));
  }

  /// Runs an action on every rank, which may communicate with other ranks on other lanes than this
  /// one's. If it throws Error on some ranks, the others do not wait for them: the work of all
  /// ranks ends (see RankGroups::end_work()), and programs cannot be run any more. Returns the
  /// error of the first rank whose action threw, which names the rank that failed first if it is
  /// another; none if all succeeded.
  template <typename Action>
  std::optional<std::string> attempt_work(Action&& action) const {
    const std::optional<std::string> failure = failure_of(std::forward<Action>(action));
    if (failure && groups_ != nullptr) groups_->end_work(*failure);
    return any_text(failure);
  }

  /// Runs an action on every rank. The action may not communicate with other ranks. If it throws
  /// Error on any rank, all ranks throw Error with the text of first_failure().
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
    if (first()) failure = failure_of(std::forward<Action>(action));
    if (failure = any_text(failure); failure) throw Error("{}", *failure);
  }

 private:
  template <typename Action>
  static std::optional<std::string> failure_of(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return std::nullopt;
  }

  /// Returns the name of a call, for messages.
  std::string named(std::string_view call) const;

  Communicator* world_ = nullptr;
  RankGroups* groups_ = nullptr;
  std::vector<std::string> names_;  // by rank
  std::string what_;                // see during(); empty without it
};

}  // namespace tessera
