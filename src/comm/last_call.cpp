#include "comm/last_call.h"

#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {

void CallRecord::begin(const Fingerprint& mark) {
  name_ = mark.name;
  mark_ = mark;
  mark_.name = {};
  made_ = inside_ = true;
  begun_ = std::chrono::steady_clock::now();
}

LastCall CallRecord::last(std::string group) const {
  if (!made_) return {};
  Fingerprint mark = mark_;
  mark.name = name_;
  return {.text = mark.text(),
          .group = std::move(group),
          .made = true,
          .inside = inside_,
          .begun = begun_};
}

std::string calls_text(int rank, std::span<const LastCall> calls) {
  std::vector<std::string> parts;
  const LastCall* finished = nullptr;
  for (const LastCall& call : calls) {
    if (!call.made) continue;
    if (call.inside) {
      parts.push_back("waits in " + call.with_group());
    } else if (finished == nullptr || call.begun > finished->begun) {
      finished = &call;
    }
  }
  if (finished != nullptr) parts.push_back("last finished " + finished->with_group());
  return fmt::format("Rank {} {}", rank,
                     parts.empty() ? "has not made any call" : join(parts, " and "));
}

}  // namespace tessera
