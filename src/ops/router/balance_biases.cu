#include "device/kernel.h"
#include "ops/router/balance_biases_kernels.h"

namespace tessera {
namespace {

constexpr int kBiasThreads = 64;

/// Changes the few biases in one block. Each thread adds up all counts, which is exact in f64.
template <typename Balance>
__global__ void change_biases(Balance balance) {
  double total = 0;
  for (int64_t c = 0; c < balance.classes; ++c) total += static_cast<double>(balance.counts[c]);
  if (total == 0) return;
  for (int64_t c = threadIdx.x; c < balance.classes; c += kBiasThreads) {
    balance.change(c, total);
  }
}

}  // namespace

template <typename Vendor, typename Balance>
void change_biases_device(const Balance& balance, Stream& stream) {
  launch(change_biases<Balance>, {.threads = kBiasThreads}, stream, balance);
}

template void change_biases_device<ThisVendor>(const BalanceStep<float>&, Stream&);
template void change_biases_device<ThisVendor>(const BalanceBySign<float>&, Stream&);

}  // namespace tessera
