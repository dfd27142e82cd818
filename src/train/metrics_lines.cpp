#include "train/metrics_lines.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {

void visit_metrics_lines(const fs::path& path, const MetricsLineVisitor& visit) {
  using Json = nlohmann::ordered_json;
  const MappedFile file(path);
  const std::string_view text = file.text();
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // what a kill left of a line
    const std::string_view line = text.substr(begin, end + 1 - begin);
    try {
      const Json object = Json::parse(line);
      if (!object.at("step").is_number_integer()) {
        throw Error("{}:{}: not a line of metrics: step is {}, expected a whole number",
                    path.string(), number, object["step"].dump());
      }
      visit(object, line);
    } catch (const Json::exception& error) {
      throw Error("{}:{}: not a line of metrics: {}", path.string(), number, error.what());
    }
    begin = end + 1;
  }
}

}  // namespace tessera
