#pragma once

#include <span>
#include <string>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Adds up values over the stages of a pipeline, in their own memory: afterwards each value holds
/// the sum, on all ranks that take part. A rank meets those that differ from it in the stage alone,
/// so the types of the values, which say nothing of stages, do not change.
///
/// The values are kept or computed ones of one element type, the same on all stages in number and
/// shape. All of them are sent in one call. `stages` are the stages that take part, ascending; all
/// if empty. Without another stage nothing is appended. `name` is the same on all stages: a name of
/// the Builder's own would count the nodes of one stage. It has no gradient.
void sum_over_stages(Builder& builder, std::string name, std::span<const Value> values,
                     std::vector<int> stages = {});

}  // namespace tessera
