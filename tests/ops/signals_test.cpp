// Signals by the thousand while products of the library run: no handler's frame may come upon a
// stack pointer that its kernels use for something else.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/signal_thread.h"
#include "ops/gemm/gemm.h"
#include "ops/host_target.h"
#include "support/gradient_check.h"

namespace tessera {
namespace {

using testing::random_tensor;

std::atomic<int> handled{0};

/// The thread in which the first handler ran, and whether another one ran elsewhere. Libraries
/// differ in where their kernels' stack pointers are, by version and processor, so not every frame
/// in a thread that computes does damage.
std::atomic<pid_t> handling{0};
std::atomic<bool> elsewhere{false};

void count_signal(int /*signal*/) {
  pid_t known = 0;
  if (!handling.compare_exchange_strong(known, ::gettid()) && known != ::gettid()) elsewhere = true;
  ++handled;
  handled.notify_all();
}

/// Products of a small model's sizes, forward and backward, with all that they read and write.
class Products {
 public:
  explicit Products(int threads) : runtime_(host_target(threads)) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          add({.m = 192,
               .n = 256,
               .k = 256,
               .input = dtype,
               .output = dtype,
               .transpose_a = transpose_a,
               .transpose_b = transpose_b,
               .threads = threads});
        }
      }
    }
  }

  /// Returns the bytes of all results.
  std::vector<std::byte> run() {
    std::vector<std::byte> results;
    for (const Product& product : products_) {
      product.gemm->run(product.a.raw(), product.b.raw(), product.c.raw(), product.workspace.raw());
      const std::byte* bytes = product.c.raw();
      results.insert(results.end(), bytes, bytes + product.c.bytes());
    }
    return results;
  }

 private:
  struct Product {
    const Gemm* gemm;
    Tensor a, b, c, workspace;
  };

  void add(const GemmShape& shape) {
    const Gemm& gemm = prepare_gemm(runtime_, shape);
    products_.push_back({&gemm, random_tensor({shape.m, shape.k}, shape.input, "a"),
                         random_tensor({shape.k, shape.n}, shape.input, "b"),
                         Tensor({shape.m, shape.n}, shape.output),
                         Tensor({std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8)});
  }

  Runtime runtime_;
  std::vector<Product> products_;
};

/// A process of its own: the thread of signals comes before all others. 3,000 signals to the
/// process, and the results of every round compared.
TEST(SignalsDeathTest, ByTheThousandLeaveProductsTheirBits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalThread signals;
        std::signal(SIGUSR1, count_signal);
        std::signal(SIGHUP, count_signal);
        ::kill(::getpid(), SIGUSR1);
        handled.wait(0);
        Products products(2);
        const std::vector<std::byte> expected = products.run();
        constexpr int kSignals = 3000;
        std::atomic<bool> computes{true};
        std::thread sender([&] {
          while (handled.load() < kSignals) ::kill(::getpid(), handled % 2 == 0 ? SIGUSR1 : SIGHUP);
          computes = false;
        });
        bool same = true;
        int rounds = 0;
        for (; computes.load() || rounds < 20; ++rounds) same = same && products.run() == expected;
        sender.join();
        std::exit(same && !elsewhere && handling != ::gettid() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
