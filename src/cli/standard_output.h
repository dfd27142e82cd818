#pragma once

#include <string>

namespace tessera {

/// Standard output did not take what was written to it; `code` is the system's error, 0 where it is
/// not known any more.
struct OutputError {
  int code = 0;
};

/// Hands the system what was printed so far. Throws OutputError when it does not take it, now or
/// earlier: the file system is full, or nobody reads the pipe.
void flush_output();

/// Writes a line to standard error. Where that is full or closed the line is lost, and nothing else
/// changes by it.
void say(const std::string& line);

/// Says on standard error that standard output failed, unless nobody reads it, and gives the status
/// that the program ends with.
int report_output_error(const OutputError& error);

}  // namespace tessera
