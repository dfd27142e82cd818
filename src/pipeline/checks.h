#pragma once

#include <vector>

#include "pipeline/validate.h"

namespace tessera {

// The parts of validate(). Each appends what it finds.

/// Checks the placement, and that there is a list for each rank.
void check_placement(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

/// Checks that each action exists and runs once, on its rank. Needs a sound placement, as all that
/// follow do.
void check_actions(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

/// Checks that each action comes after those on its own rank that it needs.
void check_order(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

/// Checks that both sides post and await each message once, after it is computed and before it is
/// needed.
void check_messages(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

/// Checks that both sides of a channel post its messages in one order. Needs sound messages.
void check_message_order(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

/// Executes the lists and reports the ranks that never come to their end. Needs all of the above.
void check_deadlock(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings);

}  // namespace tessera
