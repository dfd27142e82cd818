#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Makes every option of a number, of all commands, refuse what the library would take for one: an
/// empty text, which it reads as 0, and nan, which passes every range.
void refuse_what_is_no_number(CLI::App& app);

}  // namespace tessera
