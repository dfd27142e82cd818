#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Throws Error if a launcher started this process as one of several, and the command that the
/// command line names does not run as several: each would do all of it, and write the same files.
void refuse_several_processes(const CLI::App& app);

}  // namespace tessera
