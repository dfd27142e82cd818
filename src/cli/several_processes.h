#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Throws Error if a launcher started this process as one of several, and the command on the
/// command line does not run as several: each process would do all of its work and write the same
/// files.
void refuse_several_processes(const CLI::App& app);

}  // namespace tessera
