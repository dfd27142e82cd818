#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Makes every option that takes a number, in all commands, refuse texts that the library accepts:
/// an empty text, which it reads as 0, and nan and inf; nan passes every range.
void refuse_what_is_no_number(CLI::App& app);

}  // namespace tessera
