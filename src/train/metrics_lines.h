#pragma once

#include <functional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/file.h"

namespace tessera {

/// Takes one line of a metrics.jsonl: the object that it holds, and its text with the end of line.
using MetricsLineVisitor =
    std::function<void(const nlohmann::ordered_json& object, std::string_view line)>;

/// Calls `visit` for each complete line in turn. Throws Error naming the line when it is not a JSON
/// object with a whole number `step`, and when `visit` throws the JSON library's exception.
void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit);

}  // namespace tessera
