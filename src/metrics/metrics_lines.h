#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tessera {

/// A function that gets one line of a metrics.jsonl: parsed, and as text with the newline.
using MetricsLineVisitor =
    std::function<void(const nlohmann::ordered_json& object, std::string_view line)>;

/// Return a member of such an object, or of an object within it: a whole number, or any number. A
/// null stands for a number that was not finite, and number_member() returns NaN for it. Throw
/// Error that names the member when it is missing or is something else.
int64_t whole_member(const nlohmann::ordered_json& object, const std::string& name);
double number_member(const nlohmann::ordered_json& object, const std::string& name);

/// Returns a text member, and throws as the two above do.
std::string text_member(const nlohmann::ordered_json& object, const std::string& name);

/// The error on a line that is not one of a metrics.jsonl. It names the file and the line.
class BadMetricsLine : public Error {
 public:
  using Error::Error;
};

/// Calls `visit` for each complete line in turn. Throws BadMetricsLine when the line is not a JSON
/// object with a whole number `step`, or when `visit` throws Error. Throws Error when the file
/// cannot be read.
void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit);

}  // namespace tessera
