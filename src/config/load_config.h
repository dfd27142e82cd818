#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "config/run_config.h"

namespace tessera {

/// Gives the model that the keys of [model] start from where checkpoint.initial is set: that of
/// this checkpoint. `named` has checkpoint.initial and run.directory as they were given.
using InitialModel = std::function<ModelConfig(const RunConfig& named)>;

/// Reads a run's configuration from a TOML file. Overrides, each `section.key=VALUE`, are applied
/// after the file's keys; VALUE is TOML, a bare word standing for a text. [model] starts from the
/// preset of its family, or where `initial_model` is given and checkpoint.initial is set from the
/// model of that checkpoint; every other section from the defaults in run_config.h. The result has
/// been validated.
///
/// Throws Error with the place and what to do instead: a text that is not TOML, an unknown section
/// or key, a value of the wrong type or out of range, keys that contradict each other.
RunConfig load_config(const fs::path& path, std::span<const std::string> overrides = {},
                      const InitialModel& initial_model = nullptr);

/// The same from the text of a file; `name` is what errors call it.
RunConfig parse_config(std::string_view text, const std::string& name,
                       std::span<const std::string> overrides = {},
                       const InitialModel& initial_model = nullptr);

/// The whole configuration as a TOML file, which load_config() reads back to the same values.
std::string to_toml(const RunConfig& config);

/// All sections and keys, each with its default, what it accepts and what it is for.
std::string describe_keys();

/// Throws Error, naming keys and values, when keys contradict each other, with all contradictions:
/// the model's sizes, batch sizes of which one does not divide the other or which are too large,
/// steps beyond the schedule's end.
void validate(const RunConfig& config);

}  // namespace tessera
