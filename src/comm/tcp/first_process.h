#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "comm/tcp/plane_process.h"
#include "comm/tcp/tcp_hub.h"
#include "comm/tcp/tcp_listener.h"

namespace tessera {

/// The process of the first rank. The other ranks connect to it by TCP, and it makes their calls
/// (TcpHub). The first rank makes its own calls in the hub's World.
class FirstProcess final : public PlaneProcess {
 public:
  /// Waits at the address for the other processes, and admits those that know the token. Throws
  /// Error if they do not come within `patience`.
  FirstProcess(const TcpAddress& address, int ranks, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience,
               const HandshakeLimits& limits = {})
      : FirstProcess(TcpListener(address), ranks, host, token, patience, limits) {}
  /// Does the same where somebody listens already. Afterwards the listener may be closed.
  FirstProcess(const TcpListener& listener, int ranks, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience,
               const HandshakeLimits& limits = {});

  const std::string& network() const { return hub_.network(); }  ///< see TcpHub::network()

  int rank() const override { return 0; }
  std::span<const std::string> hosts() const override { return hub_.hosts(); }
  void set_timeout(std::chrono::milliseconds timeout) override {
    hub_.world().set_timeout(0, timeout);
  }
  std::chrono::milliseconds timeout() const override { return hub_.world().timeout(0); }
  std::unique_ptr<Transport> transport(std::span<const int> ranks, std::string_view lane) override;
  std::optional<std::string> failure(std::string_view lane) const override {
    return hub_.world().failure(lane);
  }
  void begin_wait(PlaneWait wait) override { hub_.begin_wait(0, std::move(wait)); }
  void end_wait(int64_t wait) override { hub_.end_wait(0, wait); }
  void withdraw(const PlaneWithdrawal& withdrawal) override { hub_.withdraw(0, withdrawal); }
  void end_work(std::string_view why) override { hub_.end_work(0, why); }
  Report report_end(std::string_view error, std::chrono::milliseconds patience) override;
  bool all_ended() const override { return all_ended_; }
  void end_others(int status) override;

 private:
  TcpHub hub_;
  bool all_ended_ = false;
  bool reports_ = false;                  // this rank reports an error
  std::chrono::milliseconds patience_{};  // the argument of report_end()
};

}  // namespace tessera
