#pragma once

#include <stdexcept>
#include <string>

#include <fmt/core.h>

namespace tessera {

/// An error that a user caused and can fix: a bad key, a missing file, a full disk. The message
/// says what was found, what was expected and what to do. Commands print it and exit with status 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  template <typename... Arguments>
  explicit Error(fmt::format_string<Arguments...> format, Arguments&&... arguments)
      : std::runtime_error(fmt::format(format, std::forward<Arguments>(arguments)...)) {}
};

/// A bug in our own code: a broken invariant. No user can cause or fix it.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message) : std::logic_error(message) {}
};

namespace detail {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line,
                                      const std::string& message) {
  throw InternalError(fmt::format("{} (invariant `{}` at {}:{}; this is a bug in tessera)", message,
                                  condition, file, line));
}
}  // namespace detail

}  // namespace tessera

/// Checks an invariant; throws InternalError if it does not hold. The message is a fmt format
/// string with its arguments.
#define TESSERA_CHECK(condition, ...)                                                              \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      ::tessera::detail::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)
