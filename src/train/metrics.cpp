#include "train/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const StepMetrics& metrics) {
  Json json{{"step", metrics.step},
            {"loss", metrics.loss},
            {"grad_norm", metrics.grad_norm},
            {"lr", metrics.lr},
            {"tokens", metrics.tokens},
            {"tokens_per_second", std::round(metrics.tokens_per_second)},
            {"mfu", metrics.mfu},
            {"seconds", metrics.seconds},
            {"memory_bytes", metrics.memory_bytes}};
  if (metrics.expert_load > 0) {
    json["balance_loss"] = metrics.balance_loss;
    json["router_z_loss"] = metrics.router_z_loss;
    json["expert_load"] = metrics.expert_load;
  }
  if (metrics.held_out_loss) json["held_out_loss"] = *metrics.held_out_loss;
  return json;
}

/// A number; JSON has no NaN, and what is written for one is null.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

/// The number of that key, 0 where there is none.
double number_or_zero(const Json& json, const char* key) {
  return json.contains(key) ? number(json[key]) : 0;
}

StepMetrics from_json(const Json& json) {
  StepMetrics metrics;
  metrics.step = json.at("step");
  metrics.loss = number(json.at("loss"));
  metrics.grad_norm = number(json.at("grad_norm"));
  metrics.lr = number(json.at("lr"));
  metrics.tokens = json.at("tokens");
  metrics.tokens_per_second = number(json.at("tokens_per_second"));
  metrics.mfu = number(json.at("mfu"));
  metrics.seconds = number(json.at("seconds"));
  metrics.memory_bytes = json.at("memory_bytes");
  metrics.balance_loss = number_or_zero(json, "balance_loss");
  metrics.router_z_loss = number_or_zero(json, "router_z_loss");
  metrics.expert_load = number_or_zero(json, "expert_load");
  if (json.contains("held_out_loss")) metrics.held_out_loss = number(json["held_out_loss"]);
  return metrics;
}

}  // namespace

MetricsFile::MetricsFile(fs::path path, int64_t last_step) : path_(std::move(path)) {
  if (fs::exists(path_)) {
    std::string kept;
    for (const StepMetrics& metrics : read_metrics(path_)) {
      if (metrics.step <= last_step) kept += to_json(metrics).dump() + "\n";
    }
    write_file(path_, kept);
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

void MetricsFile::append(const StepMetrics& metrics) {
  const std::string line = to_json(metrics).dump() + "\n";
  if (::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw Error("cannot write {}: {}; free some space, then go on with --resume", path_.string(),
                std::strerror(errno));
  }
}

std::vector<StepMetrics> read_metrics(const fs::path& path) {
  const std::string text = read_file(path);
  std::vector<StepMetrics> result;
  size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    try {
      result.push_back(from_json(Json::parse(text.substr(begin, end - begin))));
    } catch (const Json::exception& error) {
      throw Error("{}:{}: not a line of metrics: {}", path.string(), line, error.what());
    }
    begin = end + 1;
  }
  return result;
}

}  // namespace tessera
