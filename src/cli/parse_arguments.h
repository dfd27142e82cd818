#pragma once

#include <span>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Parses the command line, `arguments`, which begins with the program's name. Every value arrives
/// as it was typed: the library alone would split "[a,b]" into the values "a" and "b" for options
/// that take several values. Only the delimiter of an option divides a text into values. Throws
/// what the library throws.
void parse_arguments(CLI::App& app, std::span<const char* const> arguments);

}  // namespace tessera
