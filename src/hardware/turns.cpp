#include "hardware/turns.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "hardware/repeats.h"

namespace tessera {
namespace {

/// Waits until the input can be read or has ended, or until a signal throws Error. A read alone
/// would not do: the system takes it up again after a signal.
void wait_for_input(int input) {
  constexpr int kMilliseconds = 100;  // a signal just before poll() does not interrupt it
  pollfd asked{.fd = input, .events = POLLIN, .revents = 0};
  int ready = 0;
  while (ready <= 0) {
    require_no_interrupt();
    ready = ::poll(&asked, 1, kMilliseconds);
    if (ready < 0 && errno != EINTR) {
      throw Error("cannot wait for the input of turns: {}", std::strerror(errno));
    }
  }
}

/// Takes a line; false at the input's end. Byte by byte: what a buffer held, poll() would wait for
/// in vain.
bool wait_for_line(int input) {
  while (true) {
    wait_for_input(input);
    char letter = 0;
    const ssize_t count = ::read(input, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    if (letter == '\n') return true;
  }
}

}  // namespace

bool take_turn(std::FILE* output, int input) {
  fmt::print(output, "turn\n");
  std::fflush(output);
  return wait_for_line(input);
}

}  // namespace tessera
