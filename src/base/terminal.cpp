#include "base/terminal.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace tessera {
namespace {

constexpr int64_t kUsualColumns = 80;

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

bool stderr_can_redraw() {
  const std::string_view terminal = environment("TERM");
  return !terminal.empty() && terminal != "dumb" && ::isatty(STDERR_FILENO) == 1;
}

bool stderr_has_colours() { return environment("NO_COLOR").empty() && stderr_can_redraw(); }

int64_t stderr_columns() {
  const std::string_view given = environment("COLUMNS");
  int64_t columns = 0;
  const auto [end, code] = std::from_chars(given.data(), given.data() + given.size(), columns);
  if (code == std::errc() && end == given.data() + given.size() && columns > 0) return columns;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualColumns;
}

}  // namespace tessera
