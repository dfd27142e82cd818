#include "plan/chunk_times.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "engine/action.h"
#include "hardware/json_members.h"

namespace tessera {
namespace {

constexpr double kMostSeconds = 3600;

/// Returns the seconds of one pass of each chunk.
std::vector<double> seconds_of(const JsonMembers& members, const char* pass, int chunks) {
  const std::string expected = fmt::format(
      "seconds from 0 to {}: a number for all chunks, or an array with one for each of the {}",
      kMostSeconds, chunks);
  const nlohmann::json& json = members.member(pass);
  const nlohmann::json list = json.is_array() ? json : nlohmann::json::array({json});
  std::vector<double> seconds;
  for (const nlohmann::json& element : list) {
    if (!element.is_number()) members.refuse(pass, expected);
    seconds.push_back(element.get<double>());
    if (!(seconds.back() >= 0 && seconds.back() <= kMostSeconds)) members.refuse(pass, expected);
  }
  if (!json.is_array()) seconds.resize(static_cast<size_t>(chunks), seconds.front());
  if (std::ssize(seconds) != chunks) members.refuse(pass, expected);
  return seconds;
}

}  // namespace

ChunkTimes chunk_times(const Program& program,
                       const std::function<double(const Node& node)>& of_node) {
  const auto sum = [&](Segment segment) {
    double result = 0;
    for (const int node : segment_nodes(program, segment)) {
      result += of_node(program.nodes()[static_cast<size_t>(node)]);
    }
    return result;
  };
  return {.forward = sum(Segment::forward),
          .input_gradients = sum(Segment::input_gradients),
          .weight_gradients = sum(Segment::weight_gradients)};
}

double node_flops(const Program& program, const Node& node) {
  const Cost cost = node_cost(program, node);
  return cost.flops + cost.repeated_flops;
}

ChunkTimes chunk_flops(const Program& program) {
  return chunk_times(program, [&](const Node& node) { return node_flops(program, node); });
}

std::vector<double> node_times(const Program& program, const ChunkTimes& times) {
  std::vector<double> result(program.nodes().size());
  const auto share_out = [&](Segment segment, double time) {
    std::vector<int> nodes = segment_nodes(program, segment);
    const auto node_of = [&](int index) -> const Node& {
      return program.nodes()[static_cast<size_t>(index)];
    };
    std::erase_if(nodes,
                  [&](int node) { return node_of(node).operation->lane() != Lane::compute; });
    double flops = 0;
    for (const int node : nodes) flops += node_flops(program, node_of(node));
    for (const int node : nodes) {
      const double part = flops > 0 ? node_flops(program, node_of(node)) / flops
                                    : 1 / static_cast<double>(nodes.size());
      result[static_cast<size_t>(node)] = part * time;
    }
  };
  share_out(Segment::forward, times.forward);
  share_out(Segment::input_gradients, times.input_gradients);
  share_out(Segment::weight_gradients, times.weight_gradients);
  return result;
}

std::vector<ChunkTimes> parse_chunk_times(std::string_view text, const std::string& origin,
                                          int chunks) {
  const nlohmann::json json = parse_strict_json(text, origin, 2);
  const JsonMembers members(json, origin);
  members.require_known({"forward", "input_gradients", "weight_gradients"});
  const std::vector<double> forward = seconds_of(members, "forward", chunks);
  const std::vector<double> input = seconds_of(members, "input_gradients", chunks);
  const std::vector<double> weight = seconds_of(members, "weight_gradients", chunks);
  std::vector<ChunkTimes> times;
  for (size_t chunk = 0; chunk < forward.size(); ++chunk) {
    times.push_back({forward[chunk], input[chunk], weight[chunk]});
  }
  return times;
}

std::vector<ChunkTimes> read_chunk_times(const fs::path& path, int chunks) {
  return parse_chunk_times(read_file(path), path.string(), chunks);
}

}  // namespace tessera
