#pragma once

#include <string>

namespace tessera {

/// Thrown if standard output did not accept a text. `code` is the system's error, or 0 if the error
/// is no longer known.
struct OutputError {
  int code = 0;
};

/// Passes the text that was printed so far to the system. Throws OutputError if the system refuses
/// it or has refused earlier text: the file system is full, or the pipe has no reader.
void flush_output();

/// Writes a line to standard error. If standard error is full or closed, the line is lost and
/// nothing else changes.
void say(const std::string& line);

/// Reports on standard error that standard output failed, unless it is a pipe without a reader.
/// Returns the program's exit status.
int report_output_error(const OutputError& error);

}  // namespace tessera
