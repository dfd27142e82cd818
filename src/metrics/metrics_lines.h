#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/file.h"

namespace tessera {

/// Takes one line of a metrics.jsonl: the object that it holds, and its text with the end of line.
using MetricsLineVisitor =
    std::function<void(const nlohmann::ordered_json& object, std::string_view line)>;

/// A member of such an object, or of one within it: a whole number, or a number, where null, which
/// stands for one that was not finite, is NaN. Throw Error naming a member that is missing or
/// something else.
int64_t whole_member(const nlohmann::ordered_json& object, const std::string& name);
double number_member(const nlohmann::ordered_json& object, const std::string& name);

/// Calls `visit` for each complete line in turn. Throws Error naming the file and the line when it
/// is not a JSON object with a whole number `step`, and when `visit` throws Error.
void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit);

}  // namespace tessera
