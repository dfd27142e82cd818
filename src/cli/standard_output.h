#pragma once

#include <string>

namespace tessera {

/// Standard output did not accept what was written to it. `code` is the system's error; 0 if it is
/// no longer known.
struct OutputError {
  int code = 0;
};

/// Passes to the system what was printed so far. Throws OutputError if the system does not accept
/// it, now or earlier: the file system is full, or nobody reads the pipe.
void flush_output();

/// Writes a line to standard error. If standard error is full or closed, the line is lost and
/// nothing else changes.
void say(const std::string& line);

/// Reports on standard error that standard output failed, unless nobody reads standard output.
/// Returns the program's exit status.
int report_output_error(const OutputError& error);

}  // namespace tessera
