#pragma once

#include <span>

#include "comm/rank_control.h"
#include "engine/executor.h"
#include "pipeline/stage_list.h"

namespace tessera {

/// Compares with the other ranks the calls that this rank's programs and messages will make
/// (agree_on_calls()). All ranks of the mesh call this once, before the first action. Makes the
/// communicators of all programs and of the messages' lanes. Does nothing for a mesh of one rank.
///
/// `actions` is the list that the executor's memory was planned for. `lists` are the stage's lists
/// of messages. `control` is of all ranks: these end the comparison together, so that work may
/// follow that a failure of one rank ends for all (RankControl::attempt_work()). Throws Error if
/// ranks differ, which names the first call and both ranks.
void agree_on_lists(const RankControl& control, Executor& executor,
                    std::span<const ListEntry> actions, std::span<const StageList> lists);

}  // namespace tessera
