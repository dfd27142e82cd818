#pragma once

#include "pipeline/schedule.h"

namespace tessera {

/// Returns the lists with the posts and waits of their messages:
///  - A receive is posted one action ahead, before the action that precedes its own, so it may move
///    meanwhile. It is awaited directly before its own action.
///  - A send is posted when its action is done. It is awaited before the first later action of the
///    rank whose inputs show that the receiver has the message: those inputs were sent after the
///    receiver had awaited it. Such a wait never blocks, so it costs no time and no deadlock, and
///    the memory of the boundary is free from then on (Llama 3, section 6.3). If no later input
///    shows it, the send is awaited at the end of the list.
///
/// Receives are posted in the order in which their actions run. If the sender has another order,
/// the lists are wrong, and validate() says so. Any lists are accepted, wrong ones as well.
PipelineSchedule place_messages(ActionLists lists);

/// Returns a schedule in which a chunk with halves of backward passes has no whole one: a whole one
/// becomes its two halves, with the post of its gradients between them. All micro-batches of a
/// program run the same segments, so this is the schedule that a rank can run. The messages are
/// those of place_messages(). A schedule without such chunks is returned as it is.
PipelineSchedule in_halves(PipelineSchedule schedule);

}  // namespace tessera
