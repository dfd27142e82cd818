#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/terminal.h"

namespace tessera {
namespace {

/// Returns the sink for standard error. We choose the colours, because the library's own choice
/// ignores NO_COLOR and takes a dumb terminal with COLORTERM set for one with colours.
std::shared_ptr<spdlog::sinks::sink> standard_error() {
  return std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      stderr_has_colours() ? spdlog::color_mode::always : spdlog::color_mode::never);
}

}  // namespace

struct Logger::Sink {
  spdlog::logger logger;
};

Logger::Logger() : sink_(std::make_shared<Sink>(Sink{spdlog::logger("", standard_error())})) {
  sink_->logger.set_pattern("%^%H:%M:%S %v%$");
}

Logger Logger::silent() { return Logger(std::shared_ptr<Sink>()); }

void Logger::write(Level level, const std::string& message) const {
  if (sink_ == nullptr) return;
  sink_->logger.log(level == Level::info ? spdlog::level::info : spdlog::level::warn,
                    spdlog::string_view_t(message));
}

}  // namespace tessera
