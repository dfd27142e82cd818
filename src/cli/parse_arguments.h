#pragma once

#include <span>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Parses the command line, `arguments`, which begins with the program's name, more strictly than
/// the library alone does:
///  - Every value arrives as it was typed. The library would split "[a,b]" into the values "a" and
///    "b" for options that take several values. Only the delimiter of an option divides a text, and
///    an empty entry between delimiters stays one.
///  - An option that takes a number refuses an empty text, which the library reads as 0. It also
///    refuses inf, and nan, which would pass every range check.
///  - The error about an unknown command names the command.
/// Throws what the library throws.
void parse_arguments(CLI::App& app, std::span<const char* const> arguments);

/// Returns the innermost command that the parsed command line names.
const CLI::App& chosen_command(const CLI::App& app);

}  // namespace tessera
