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

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    delayed([&] { inner_->all_gather(mark, layout, from, to); });
  }
  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    delayed([&] { inner_->reduce_scatter(mark, layout, from, to); });
  }
  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    delayed([&] { inner_->all_reduce(mark, from, to); });
  }
  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    delayed([&] { inner_->all_to_all(mark, from, to); });
  }
  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received) override {
    delayed([&] { inner_->all_to_all_rows(mark, from, sent, to, received); });
  }
  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    delayed([&] { inner_->broadcast(mark, root, tensor); });
  }
  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    return inner_->post(message, sent);
  }
  void wait(std::span<TransportPost* const> posts) override {
    delayed([&] { inner_->wait(posts); });
  }
  void barrier(const Fingerprint& mark) override {
    delayed([&] { inner_->barrier(mark); });
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
