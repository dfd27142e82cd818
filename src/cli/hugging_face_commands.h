#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

// Each adds one subcommand to `checkpoint`.

void add_import_command(CLI::App& checkpoint);
void add_export_command(CLI::App& checkpoint);

}  // namespace tessera
