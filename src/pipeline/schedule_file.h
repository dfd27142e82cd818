#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "pipeline/schedule.h"

namespace tessera {

// Schedules in files are lines of text. '#' begins a comment, and empty lines are left out:
//
//   tessera pipeline schedule 1
//   micro-batches 2
//   chunks 0 1                        # the rank of each chunk, from the model's first chunk on
//   rank 0: F0.0 F0.1 B0.0 I0.1 W0.1
//   rank 1: F1.0 B1.0 F1.1 B1.1
//
// An action is F (forward), B (backward), I (input gradients) or W (weight gradients) with its
// chunk and its micro-batch, both counted from 0. Ranks are in order. The list of a rank may go on
// in further lines, which begin with its "rank N:" again. Messages are not in the file: they are
// placed as for every schedule (place_messages.h).

/// Returns the text of lists. Lists that are read from it are equal, but for their name.
std::string schedule_text(const ActionLists& lists);

/// Reads lists. Throws Error, with `origin`, the line, what was found and what was expected, if the
/// text has another form. Does not check that the lists can run: see validate().
ActionLists parse_schedule(std::string_view text, const std::string& origin);

/// Reads a file, places the messages and checks the schedule. Throws Error with the path if the
/// file cannot be read, has another form or a list that cannot run, or is not for `ranks` ranks
/// and, if a number is given, so many micro-batches. The name of the schedule is the path.
PipelineSchedule read_schedule(const fs::path& path, int ranks, std::optional<int> micro_batches);

}  // namespace tessera
