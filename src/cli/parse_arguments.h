#pragma once

#include <span>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Parses the command line, `arguments`, which begins with the program's name. Every value arrives
/// as it was typed. The library would take "[a,b]" for the two values "a" and "b" wherever an
/// option takes several values. Only the delimiter of an option divides a text into values. Throws
/// what the library throws.
void parse_arguments(CLI::App& app, std::span<const char* const> arguments);

}  // namespace tessera
