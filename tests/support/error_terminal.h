#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace tessera::testing {

/// While it lives, standard error is a terminal, and the environment has the given variables and
/// none of the others that speak of terminals.
class ErrorTerminal {
 public:
  ErrorTerminal(uint16_t columns, std::map<std::string, std::string> variables)
      : error_(::dup(STDERR_FILENO)), terminal_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_TRUE(::grantpt(terminal_) == 0 && ::unlockpt(terminal_) == 0);
    const int program = ::open(::ptsname(terminal_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(program, TIOCSWINSZ, &size), 0);
    termios modes{};
    ::tcgetattr(program, &modes);
    modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // line ends arrive as they are written
    ::tcsetattr(program, TCSANOW, &modes);
    ::dup2(program, STDERR_FILENO);
    ::close(program);
    for (const char* name : {"TERM", "COLORTERM", "NO_COLOR", "COLUMNS"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ErrorTerminal() {
    ::dup2(error_, STDERR_FILENO);
    ::close(error_);
    ::close(terminal_);
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  ErrorTerminal(const ErrorTerminal&) = delete;
  ErrorTerminal& operator=(const ErrorTerminal&) = delete;

  /// Takes what was written to it since the last call. The system passes it on when it likes, so a
  /// mark follows it, up to which it is read.
  std::string take() const {
    constexpr char kMark = '\x1e';
    EXPECT_EQ(::write(STDERR_FILENO, &kMark, 1), 1);
    std::string text;
    for (char next = 0; ::read(terminal_, &next, 1) == 1 && next != kMark;) text += next;
    return text;
  }

 private:
  int error_;
  int terminal_;
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace tessera::testing
