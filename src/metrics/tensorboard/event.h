#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// The bytes of TensorBoard's event files. A file is a sequence of records in the TFRecord format,
// and the payload of a record is an event, a message of Protocol Buffers.

/// A number with a name such as "train/loss".
struct Scalar {
  std::string tag;
  double value = 0;  ///< TensorBoard keeps it as a float
};

/// The numbers of an event's fields.
struct EventField {
  static constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
};

// The following functions return messages of the types in TensorFlow's event.proto and
// summary.proto. The wall time is in seconds since 1970.

/// Returns the first event of every file.
std::string version_event(double wall_time);

/// Returns the event that says that a run starts, or starts again, at `first_step`. Readers drop
/// that step and later ones from earlier files.
std::string start_event(double wall_time, int64_t first_step);

/// Returns the numbers of one step as a message of the type Summary, which the step's event holds.
std::string summary_message(std::span<const Scalar> scalars);

/// Returns the event with the numbers of one step.
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);

/// Returns the CRC-32C (Castagnoli) as iSCSI defines it (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// Returns a record of a TFRecord file: the payload's length (u64), the masked CRC-32C of the
/// length (u32), the payload, and its masked CRC-32C (u32). All numbers are little-endian. Masking
/// rotates a checksum right by 15 bits and adds a constant, because data followed by its plain
/// checksum would have the same checksum whatever the data.
std::string tfrecord(std::string_view payload);

}  // namespace tessera
