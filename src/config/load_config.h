#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "config/run_config.h"

namespace tessera {

/// A function that returns the model of the checkpoint that checkpoint.initial names. The keys of
/// [model] start from it. `named` has checkpoint.initial and run.directory as given.
using InitialModel = std::function<ModelConfig(const RunConfig& named)>;

/// Reads a run's configuration from a TOML file and validates it. The overrides, each
/// `section.key=VALUE`, apply after the file's keys. VALUE is TOML, or a bare word that stands for
/// a text. [model] starts from the preset of its family, or from the model of the checkpoint
/// checkpoint.initial if that is set and `initial_model` is given. Every other section starts from
/// the defaults in run_config.h.
///
/// Throws Error, which says where and what to do, when a text is not TOML, a section or key is
/// unknown, a value has the wrong type or is out of range, or keys contradict each other.
RunConfig load_config(const fs::path& path, std::span<const std::string> overrides = {},
                      const InitialModel& initial_model = nullptr);

/// Returns the configuration in the text of a file, as load_config() does. Errors call it `name`.
RunConfig parse_config(std::string_view text, const std::string& name,
                       std::span<const std::string> overrides = {},
                       const InitialModel& initial_model = nullptr);

/// Returns [parallel] of the text of a file and of overrides, for a model that another file
/// describes. Whether it suits the model is not checked (see mesh_for_inference()); all other
/// errors are those of load_config().
ParallelSection parse_parallel(std::string_view text, const std::string& name,
                               std::span<const std::string> overrides = {});

/// Returns the whole configuration as a TOML file. load_config() reads it back to the same values.
std::string to_toml(const RunConfig& config);

/// Returns a text of all sections and keys, each with its default, what it accepts and its purpose.
std::string describe_keys();

/// Throws Error when keys contradict each other. The error lists all contradictions, with keys and
/// values. They concern the model's sizes, batch sizes that do not divide each other or are too
/// large, steps beyond the schedule's end, and the like.
void validate(const RunConfig& config);

/// Throws Error when keys of [parallel] contradict each other, whatever the model is.
void validate(const ParallelSection& parallel);

}  // namespace tessera
