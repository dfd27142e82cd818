#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// Makes every option that takes a number, in all commands, reject texts that the library accepts:
/// an empty text, which the library reads as 0, and nan and inf. nan would pass every range check.
void refuse_what_is_no_number(CLI::App& app);

}  // namespace tessera
