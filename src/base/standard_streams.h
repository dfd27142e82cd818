#pragma once

namespace tessera {

/// Opens /dev/null as standard input, output or error if the process was started without it.
/// Otherwise the next file to be opened would take its number, and text meant for the terminal
/// would be written into that file. Writing to a missing standard output still fails; messages to a
/// missing standard error are dropped. Call this before any file is opened.
void open_missing_streams();

}  // namespace tessera
