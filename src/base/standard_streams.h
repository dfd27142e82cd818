#pragma once

namespace tessera {

/// Opens /dev/null in the place of standard input, output and error where the process was started
/// without them. Otherwise the next file that is opened takes the number of one, and what is meant
/// for the terminal is written into it. Nobody reads standard output then, so writing to it fails
/// as before; messages on standard error are dropped. To be called before any file is opened.
void open_missing_streams();

}  // namespace tessera
