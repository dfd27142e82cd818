#include "comm/last_call.h"

#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {

void CallRecord::begin(const Fingerprint& mark) {
  name_ = mark.name;
  mark_ = mark;
  mark_.name = {};
  state_ = CallState::inside;
  begun_ = std::chrono::steady_clock::now();
}

LastCall CallRecord::last(std::string group) const {
  if (state_ == CallState::none) return {};
  Fingerprint mark = mark_;
  mark.name = name_;
  return {.text = mark.text(), .group = std::move(group), .state = state_, .begun = begun_};
}

std::string calls_text(int rank, std::span<const LastCall> last_calls) {
  std::vector<std::string> parts;
  const LastCall* failed = nullptr;
  const LastCall* finished = nullptr;
  const auto keep_later = [](const LastCall& call, const LastCall*& kept) {
    if (kept == nullptr || call.begun > kept->begun) kept = &call;
  };
  for (const LastCall& call : last_calls) {
    if (call.state == CallState::inside) parts.push_back("waits in " + call.with_group());
    if (call.state == CallState::failed) keep_later(call, failed);
    if (call.state == CallState::finished) keep_later(call, finished);
  }
  if (failed != nullptr) parts.push_back("gave up " + failed->with_group());
  if (finished != nullptr) parts.push_back("last finished " + finished->with_group());
  return fmt::format("Rank {} {}", rank,
                     parts.empty() ? "has not made any call" : join(parts, " and "));
}

}  // namespace tessera
