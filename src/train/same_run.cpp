#include "train/same_run.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/differences.h"
#include "config/load_config.h"
#include "config/pipeline_of.h"

namespace tessera {
namespace {

SameFact configuration(const RunConfig& config) {
  const auto difference = [config](const std::string& first_value) {
    std::vector<std::string> parts;
    for (const ConfigDifference& found :
         differences(parse_config(first_value, "the configuration of rank 0"), config)) {
      parts.push_back(
          fmt::format("{} is {} there and {} here", found.key, found.first, found.second));
    }
    return join(parts, ", ");
  };
  return {"the configuration", to_toml(config), difference};
}

/// Sends the text of rank `rank` to all ranks and returns it. All ranks name the same rank.
std::string text_from(int rank, const std::string& text, const RankControl& control) {
  return control.any_text(control.rank() == rank ? std::optional(text) : std::nullopt).value_or("");
}

/// Returns the first rank whose hash of a fact is not that of rank 0; none if all are the same.
/// `hashes` has those of all `facts` facts, rank by rank; `fact` is the index of the one compared.
std::optional<int> first_different_rank(std::span<const uint64_t> hashes, size_t facts,
                                        size_t fact) {
  for (size_t i = fact; i < hashes.size(); i += facts) {
    if (hashes[i] != hashes[fact]) return static_cast<int>(i / facts);
  }
  return std::nullopt;
}

}  // namespace

SameFact readable_fact(std::string what, const std::string& value) {
  return {std::move(what), value, [value](const std::string& first_value) {
            return fmt::format("{} there and {} here", first_value, value);
          }};
}

void require_same(std::span<const SameFact> facts, const Processes& processes,
                  const RankControl& control) {
  std::vector<uint64_t> own;
  for (const SameFact& fact : facts) own.push_back(hash(fact.value));
  const std::vector<uint64_t> all = control.gather(own);
  for (size_t i = 0; i < facts.size(); ++i) {
    const std::optional<int> different = first_different_rank(all, facts.size(), i);
    if (!different) continue;
    const std::string first_value = text_from(0, facts[i].value, control);
    std::string difference;
    if (control.rank() == *different && facts[i].difference) {
      difference = facts[i].difference(first_value);
    }
    difference = text_from(*different, difference, control);
    throw Error("{} has another value of {} than {}{}{}; start all ranks with the same",
                processes.text(*different), facts[i].what, processes.text(0),
                difference.empty() ? "" : ": ", difference);
  }
}

void require_same_start(const RunConfig& config, const Processes& processes,
                        const RankControl& control) {
  const SameFact program{"the program", hash_text(hash(read_file("/proc/self/exe")))};
  require_same(std::vector{program, configuration(config)}, processes, control);
  // The same path may hold another schedule on another machine. A file that cannot be read is
  // reported by whoever needs it.
  const bool is_file = !schedule_kind(config.parallel) && fs::exists(config.parallel.schedule);
  const SameFact schedule{"the file of parallel.schedule",
                          is_file ? read_file(config.parallel.schedule) : ""};
  require_same(std::span(&schedule, 1), processes, control);
}

void require_same_data(const RunData& data, const Processes& processes,
                       const RankControl& control) {
  std::vector<SameFact> facts{{"the tokenizer", data.tokenizer().fingerprint}};
  for (size_t phase = 0; phase < data.phases(); ++phase) {
    for (const DataSource& source : data.all_sources(phase).sources) {
      facts.push_back(
          {fmt::format("the data of the source {}", source.name), source.instances->fingerprint()});
    }
  }
  require_same(facts, processes, control);
}

}  // namespace tessera
