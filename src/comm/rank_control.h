#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace tessera {

/// What the ranks of a run agree about between the steps of their programs, on a lane of its own:
/// that one of them failed, that the run ends. All ranks make the same calls in the same order.
/// The first rank is position 0 of the group.
class RankControl {
 public:
  /// Of a run of one rank, which agrees with itself.
  RankControl() = default;
  /// Of several ranks. `world` is the group of all of them; it must outlive this.
  explicit RankControl(Communicator& world) : world_(&world) {}

  bool first() const { return world_ == nullptr || world_->position() == 0; }
  bool several() const { return world_ != nullptr; }

  /// Whether any rank says so.
  bool any(bool own) const;
  /// The text of the first rank that has one; none if no rank has one.
  std::optional<std::string> any_text(const std::optional<std::string>& own) const;
  /// What the first rank says.
  int tell(int number) const;
  /// The numbers of all ranks, rank by rank. Each has as many.
  std::vector<uint64_t> gather(std::span<const uint64_t> own) const;
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

  /// Runs an action on every rank, which may not meet others in it. If it throws Error on any rank,
  /// all throw Error with the text of the first that did.
  template <typename Action>
  void together(Action&& action) const {
    if (!several()) return action();
    if (const auto failure = attempt(std::forward<Action>(action))) throw Error("{}", *failure);
  }

 private:
  Communicator* world_ = nullptr;
};

}  // namespace tessera
