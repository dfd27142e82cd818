#pragma once

#include <span>
#include <variant>
#include <vector>

#include "engine/action.h"

namespace tessera::testing {

/// The post or the wait of a message between two ranks. Its hold begins where it is posted, and
/// ends where it is awaited.
struct ListMessage {
  Hold hold;
  bool sends = false;
  int peer = 0;  ///< the rank at the other end
  Lane lane = Lane::messages_forward;
};

/// What a rank does, in order.
using RankList = std::vector<std::variant<Action, ListMessage>>;

/// Returns the entries as plan_memory() takes them.
inline std::vector<ListEntry> for_plan(const RankList& list) {
  std::vector<ListEntry> result;
  for (const auto& entry : list) {
    if (const auto* const message = std::get_if<ListMessage>(&entry)) {
      result.emplace_back(message->hold);
    } else {
      result.emplace_back(std::get<Action>(entry));
    }
  }
  return result;
}

}  // namespace tessera::testing
