#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "comm/transport.h"

namespace tessera::testing {

/// Delays each call of a transport by a random time that a seed gives: most not at all, and some by
/// up to 100 microseconds.
class DelayedTransport final : public Transport {
 public:
  DelayedTransport(std::unique_ptr<Transport> inner, uint64_t seed)
      : inner_(std::move(inner)), random_(seed) {}

  void make(const TransportCall& call) override {
    delayed([&] { inner_->make(call); });
  }
  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    return inner_->post(message, sent);
  }
  void wait(std::span<TransportPost* const> posts) override {
    delayed([&] { inner_->wait(posts); });
  }
  void compare_calls(bool each) override { inner_->compare_calls(each); }
  bool compares_calls() const override { return inner_->compares_calls(); }
  void throw_if_broken() override { inner_->throw_if_broken(); }

 private:
  void delay() {
    if (random_() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
    }
  }
  /// Delays a call before it begins, and after its end.
  template <typename Call>
  void delayed(Call&& call) {
    delay();
    call();
    delay();
  }

  std::unique_ptr<Transport> inner_;
  std::mt19937_64 random_;
};

}  // namespace tessera::testing
