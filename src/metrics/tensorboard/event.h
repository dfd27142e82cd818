#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera {

/// A number with a name such as "train/loss".
struct Scalar {
  std::string tag;
  double value = 0;  ///< TensorBoard keeps it as a float
};

// Functions that return a serialised message of the type Event in TensorFlow's event.proto, which
// TensorBoard reads. The wall time is in seconds since 1970.

/// Returns the first event of every file.
std::string version_event(double wall_time);

/// Returns the event that says that a run starts, or starts again, at `first_step`. Readers drop
/// that step and later ones from earlier files.
std::string start_event(double wall_time, int64_t first_step);

/// Returns the numbers of one step as a message of the type Summary, which the step's event holds.
std::string summary_message(std::span<const Scalar> scalars);

/// Returns the event with the numbers of one step.
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);

}  // namespace tessera
