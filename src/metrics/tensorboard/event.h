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

// Each returns a serialised message of the type Event in TensorFlow's event.proto, which
// TensorBoard reads. The wall time is in seconds since 1970.

/// The first event of every file.
std::string version_event(double wall_time);

/// Says that a run starts, or starts again, at `first_step`. Readers drop that step and later ones
/// from earlier files.
std::string start_event(double wall_time, int64_t first_step);

/// The numbers of one step, as the event of the step holds them: a message of the type Summary.
std::string summary_message(std::span<const Scalar> scalars);

/// The event with the numbers of one step.
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);

}  // namespace tessera
