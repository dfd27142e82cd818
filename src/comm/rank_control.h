#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/rank_groups.h"

namespace tessera {

/// What the ranks of a run agree about between the steps of their programs, on a lane of its own:
/// that one of them failed, that the run ends. All ranks make the same calls in the same order.
/// The first rank is position 0 of the group.
class RankControl {
 public:
  /// Of a run of one rank, which agrees with itself.
  RankControl() = default;
  /// Of several ranks. `groups` are those of this one, and must outlive this.
  explicit RankControl(RankGroups& groups)
      : world_(&groups.world(kControlLane)), groups_(&groups) {}

  bool first() const { return world_ == nullptr || world_->position() == 0; }
  bool several() const { return world_ != nullptr; }
  /// This rank.
  int rank() const {
    return world_ == nullptr ? 0 : world_->ranks()[static_cast<size_t>(world_->position())];
  }

  /// Whether any rank says so.
  bool any(bool own) const;
  /// The text of the first rank that has one; none if no rank has one.
  std::optional<std::string> any_text(const std::optional<std::string>& own) const;
  /// The text of the rank with the lowest number, and of several such ranks the first. Ranks
  /// without a text do not count; none if no rank has one.
  std::optional<std::string> lowest_text(int64_t number,
                                         const std::optional<std::string>& own) const;
  /// What the first rank says.
  int tell(int number) const;
  /// The numbers of all ranks, rank by rank. Each has as many.
  std::vector<uint64_t> gather(std::span<const uint64_t> own) const;
  /// The texts of all ranks, rank by rank, on the first rank. The others get none.
  std::vector<std::string> texts_for_first(const std::string& own) const;
  /// Waits for all ranks.
  void wait() const;

  /// Runs an action on every rank. Returns what the error of the first rank says whose action threw
  /// Error; none if all succeeded. The action may not meet other ranks.
  template <typename Action>
  std::optional<std::string> attempt(Action&& action) const {
    std::optional<std::string> failure;
    try {
      action();
    } catch (const Error& error) {
      failure = error.what();
    }
    return any_text(failure);
  }

  /// Runs an action on every rank, in which the ranks meet on other lanes than this one's. If it
  /// throws Error on some ranks, the others do not wait for them: the work of all ends (see
  /// RankGroups::end_work()), and programs cannot be run any more. Returns what the error of the
  /// first rank says whose action threw, which names the rank that failed first if it is another;
  /// none if all succeeded.
  template <typename Action>
  std::optional<std::string> attempt_work(Action&& action) const {
    return attempt([&] {
      try {
        action();
      } catch (const Error& error) {
        if (groups_ != nullptr) groups_->end_work(error.what());
        throw;
      }
    });
  }

  /// Runs an action on every rank, which may not meet others in it. If it throws Error on any rank,
  /// all throw Error with the text of the first that did.
  template <typename Action>
  void together(Action&& action) const {
    if (!several()) return action();
    if (const auto failure = attempt(std::forward<Action>(action))) throw Error("{}", *failure);
  }

 private:
  Communicator* world_ = nullptr;
  RankGroups* groups_ = nullptr;
};

}  // namespace tessera
