#include "metrics/metrics_lines.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kChunkBytes = int64_t{1} << 20;  // read at once

const OrderedJson& member(const OrderedJson& object, const std::string& name) {
  if (!object.is_object()) {
    throw Error("found {}, expected an object with the member {}", printable(object.dump()), name);
  }
  const auto found = object.find(name);
  if (found == object.end()) throw Error("it has no member {}", name);
  return *found;
}

void visit_line(std::string_view line, const fs::path& path, int64_t number,
                const MetricsLineVisitor& visit) {
  const auto refuse = [&](const std::exception& error) {
    throw BadMetricsLine("{}:{}: not a line of metrics: {}", path.string(), number, error.what());
  };
  try {
    const OrderedJson object = OrderedJson::parse(line);
    whole_member(object, "step");  // so every visitor can rely on it
    visit(object, line);
  } catch (const OrderedJson::exception& error) {
    refuse(error);
  } catch (const Error& error) {
    refuse(error);
  }
}

}  // namespace

int64_t whole_member(const OrderedJson& object, const std::string& name) {
  const OrderedJson& value = member(object, name);
  if (!value.is_number_integer()) {
    throw Error("{} is {}, expected a whole number", name, printable(value.dump()));
  }
  return value.get<int64_t>();
}

double number_member(const OrderedJson& object, const std::string& name) {
  const OrderedJson& value = member(object, name);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) {
    throw Error("{} is {}, expected a number", name, printable(value.dump()));
  }
  return value.get<double>();
}

std::string text_member(const OrderedJson& object, const std::string& name) {
  const OrderedJson& value = member(object, name);
  if (!value.is_string()) {
    throw Error("{} is {}, expected a text", name, printable(value.dump()));
  }
  return value.get<std::string>();
}

void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit) {
  const ReadFile file(path);
  std::string unvisited;  // the bytes that are read but not yet visited
  int64_t number = 0;
  for (int64_t offset = 0; offset < file.size();) {
    const auto chunk = static_cast<size_t>(std::min(kChunkBytes, file.size() - offset));
    const size_t unfinished = unvisited.size();  // bytes of a line that is read in part
    unvisited.resize(unfinished + chunk);
    file.read_at(offset, std::as_writable_bytes(std::span(unvisited).subspan(unfinished)));
    offset += static_cast<int64_t>(chunk);
    size_t begin = 0;
    // A line that a kill cut off has no newline and is skipped.
    for (size_t end; (end = unvisited.find('\n', begin)) != std::string::npos; begin = end + 1) {
      visit_line(std::string_view(unvisited).substr(begin, end + 1 - begin), path, ++number, visit);
    }
    unvisited.erase(0, begin);
  }
}

}  // namespace tessera
