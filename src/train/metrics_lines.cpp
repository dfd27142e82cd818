#include "train/metrics_lines.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

const OrderedJson& member(const OrderedJson& object, const std::string& name) {
  if (!object.is_object()) {
    throw Error("found {}, expected an object with the member {}", printable(object.dump()), name);
  }
  const auto found = object.find(name);
  if (found == object.end()) throw Error("it has no member {}", name);
  return *found;
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

void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit) {
  const MappedFile file(path);
  const std::string_view text = file.text();
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // what a kill left of a line
    const std::string_view line = text.substr(begin, end + 1 - begin);
    try {
      const OrderedJson object = OrderedJson::parse(line);
      whole_member(object, "step");  // so that every visitor has it
      visit(object, line);
    } catch (const OrderedJson::exception& error) {
      throw Error("{}:{}: not a line of metrics: {}", path.string(), number, error.what());
    } catch (const Error& error) {
      throw Error("{}:{}: not a line of metrics: {}", path.string(), number, error.what());
    }
    begin = end + 1;
  }
}

}  // namespace tessera
