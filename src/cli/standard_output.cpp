#include "cli/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace tessera {

void flush_output() {
  if (std::fflush(stdout) != 0) throw OutputError{errno};
  if (std::ferror(stdout) != 0) throw OutputError{};
}

void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

int report_output_error(const OutputError& error) {
  if (error.code != EPIPE) {  // a reader such as `head` may have all that it wants
    say("tessera: error: standard output cannot be written: " +
        (error.code != 0 ? std::generic_category().message(error.code)
                         : "a part of the output is lost"));
  }
  return 1;
}

}  // namespace tessera
