#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/append_file.h"
#include "metrics/tensorboard/event.h"

namespace tessera {

/// The beginning of the names of event files. The seconds since 1970 follow, in ten digits.
inline constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

/// Writes scalars to a new events.out.tfevents.* in a folder that TensorBoard can watch.
class EventsFile {
 public:
  /// Makes the folder and the file for `first_step` and later steps. TensorBoard reads a folder's
  /// files in the order of their names, so the new name sorts after the existing ones. These steps
  /// in existing files are declared void. Throws Error when the file cannot be written.
  EventsFile(const fs::path& folder, int64_t first_step);

  /// Writes one step as one record, whole or not at all. Throws Error when the file system refuses
  /// it.
  void append(int64_t step, std::span<const Scalar> scalars);

  /// Waits until all records are on the disk (see AppendFile).
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace tessera
