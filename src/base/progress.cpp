#include "base/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/terminal.h"
#include "base/text.h"
#include "base/utf8.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kRedrawEvery{100};  // on a terminal that can draw over a line
constexpr std::chrono::seconds kPrintEvery{10};         // elsewhere

/// Prints to standard error. Ignores errors: if standard error cannot be written, there is no other
/// way to report it.
void print_if_possible(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

/// Returns the first `columns` characters of a UTF-8 text. Each character counts as one column.
std::string_view first_columns(std::string_view text, int64_t columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (!is_inside_character(text[end]) && columns-- == 0) break;
  }
  return text.substr(0, end);
}

}  // namespace

Progress::Progress() : can_redraw_(stderr_can_redraw()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) print_if_possible("\r\033[K");
  drawn_ = false;
}

void Progress::show(std::string_view text, bool last) {
  const auto now = std::chrono::steady_clock::now();
  if (!last && now < next_line_time_) return;
  if (can_redraw_) {
    // A line that wraps cannot be drawn over. The last column stays free, because a terminal may
    // wrap once it is written. The last line stays as it is and may wrap.
    print_if_possible(fmt::format(
        "\r\033[K{}{}", last ? text : first_columns(text, stderr_columns() - 1), last ? "\n" : ""));
    drawn_ = !last;
    next_line_time_ = now + kRedrawEvery;
  } else if (!(last && text == last_printed_)) {
    print_if_possible(fmt::format("{}\n", text));
    last_printed_ = text;
    next_line_time_ = now + kPrintEvery;
  }
}

std::string Progress::bar(double fraction, double seconds_spent, std::string_view detail) {
  constexpr int kWidth = 24;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(fraction * kWidth);
  const std::string remaining =
      fraction > 0 ? format_duration(seconds_spent * (1 - fraction) / fraction) : "?";
  return fmt::format("{:3.0f}% [{:<{}}] {}, {} left", fraction * 100, std::string(filled, '='),
                     kWidth, detail, remaining);
}

}  // namespace tessera
