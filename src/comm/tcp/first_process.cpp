#include "comm/tcp/first_process.h"

#include <cstdio>

#include <fmt/format.h>

namespace tessera {

FirstProcess::FirstProcess(const TcpListener& listener, int ranks, const std::string& host,
                           std::string_view token, std::chrono::milliseconds patience,
                           const HandshakeLimits& limits)
    : hub_(gather_ranks(listener, ranks, host, token, patience, limits), own_calls_) {}

std::unique_ptr<Transport> FirstProcess::transport(std::span<const int> ranks,
                                                   std::string_view lane) {
  std::unique_ptr<Transport> of_rank = hub_.world().transport(0, ranks, lane);
  hub_.world().await_group(0, ranks, lane);
  return of_rank;
}

Processes::Report FirstProcess::report_end(std::string_view error,
                                           std::chrono::milliseconds patience) {
  const auto [report, all_ended] = hub_.end(0, error, patience);
  all_ended_ = all_ended;
  reports_ = report != Report::none;
  patience_ = patience;
  return report;
}

void FirstProcess::end_others(int status) {
  const std::string missing = hub_.missing_text(patience_);
  if (!reports_ && !missing.empty()) fmt::print(stderr, "tessera: error: {}\n", missing);
  hub_.abort_others(0, status);
}

}  // namespace tessera
