#pragma once

namespace tessera {

// What the writer and the reader of a trace agree on.

inline constexpr double kTraceMicroseconds = 1e6;  ///< a second in the format's unit of time
inline constexpr const char* kTraceVersionKey = "tessera_trace";
inline constexpr int kTraceVersion = 1;
/// The block of the event that holds all others.
inline constexpr const char* kTraceStepBlock = "step";

}  // namespace tessera
