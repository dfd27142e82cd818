#include "plan/blocks/turns.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/interrupt.h"

namespace tessera {
namespace {

/// Waits until the input can be read or has ended. Throws Error after a signal. The program's
/// signal handlers run in another thread (SignalThread), so a signal need not end poll().
void wait_for_input(int input) {
  constexpr int kPollMilliseconds = 100;  // how long a signal may go unnoticed
  pollfd awaited{.fd = input, .events = POLLIN, .revents = 0};
  int ready = 0;
  while (ready <= 0) {
    require_no_interrupt();
    ready = ::poll(&awaited, 1, kPollMilliseconds);
    if (ready < 0 && errno != EINTR) {
      throw Error("cannot wait for a line on standard input (--turns): {}", std::strerror(errno));
    }
  }
}

/// Reads a line. Returns false at the end of the input, and if it cannot be read any more. Reads
/// byte by byte, because poll() does not see bytes that are already in a buffer.
bool wait_for_line(int input) {
  while (true) {
    wait_for_input(input);
    char character = 0;
    const ssize_t count = ::read(input, &character, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    if (character == '\n') return true;
  }
}

}  // namespace

bool take_turn(std::FILE* output, int input) {
  fmt::print(output, "turn\n");
  std::fflush(output);
  return wait_for_line(input);
}

}  // namespace tessera
