#include "base/standard_streams.h"

#include <array>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace tessera {

void open_missing_streams() {
  // Standard output is opened for reading, so that writing to it still fails.
  constexpr std::array<std::pair<int, int>, 3> kModes{
      {{STDIN_FILENO, O_RDONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_WRONLY}}};
  for (const auto& [stream, mode] : kModes) {
    // open() takes the lowest free number: `stream`, because those below it are open by now.
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", mode);
  }
}

}  // namespace tessera
