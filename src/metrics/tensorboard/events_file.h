#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "base/append_file.h"
#include "base/file.h"
#include "metrics/tensorboard/event.h"

namespace tessera {

/// Writes scalars to a new events.out.tfevents.* in a folder that TensorBoard can watch.
class EventsFile {
 public:
  /// Makes the folder and the file for `first_step` and later steps. TensorBoard reads a folder's
  /// files in the order of their names, so the new name sorts after the existing ones. The new
  /// file declares these steps void in the existing files (see start_event()). Throws Error when
  /// the file cannot be written.
  EventsFile(const fs::path& folder, int64_t first_step);

  /// Writes one step as one record, whole or not at all. Throws Error when the file system refuses
  /// it.
  void append(int64_t step, std::span<const Scalar> scalars);

  /// Waits until all records are on the disk (see AppendFile).
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

/// Returns the steps whose numbers the event files of a folder hold, each with the hash of its
/// summary_message(). Steps that a later file declares void do not count. A file ends at a record
/// that a kill or a full disk cut off. Returns nothing if there is no such folder.
std::map<int64_t, uint64_t> recorded_steps(const fs::path& folder);

}  // namespace tessera
