#include "ops/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/gemm/plain_gemm.h"
#include "ops/support.h"

namespace tessera {
namespace {

std::array<int64_t, 10> fields_of(const GemmShape& shape) {
  return {shape.m,
          shape.n,
          shape.k,
          static_cast<int64_t>(shape.input),
          static_cast<int64_t>(shape.output),
          int64_t{shape.transpose_a} | int64_t{shape.transpose_b} << 1 |
              int64_t{shape.accumulate} << 2 | int64_t{shape.packed_b} << 3,
          shape.lda,
          shape.ldb,
          shape.ldc,
          shape.threads};
}

struct GemmCache {
  std::mutex mutex;  // of `products`: streams of the emulated device are threads
  std::unordered_map<GemmShape, std::unique_ptr<Gemm>, GemmShapeHash> products;
  GemmCounter* counter = nullptr;                                // null: runs are not counted
  std::unordered_map<GemmShape, int64_t, GemmShapeHash> issued;  // to a device, since the last take
};

std::unique_ptr<Gemm> make(const Target& target, const GemmShape& shape) {
  const bool empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  if (!empty && !use_plain(target, shape.input)) {
    if (auto fast = make_onednn_gemm(shape, target)) return fast;
  }
  return make_plain_gemm(shape);
}

}  // namespace

const void* Gemm::pack(const void* b, std::byte*) const { return b; }

size_t GemmShapeHash::operator()(const GemmShape& shape) const {
  const auto fields = fields_of(shape);
  return hash(std::as_bytes(std::span(fields)));
}

const Gemm& prepare_gemm(Runtime& runtime, const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);  // equal products share one entry
  GemmCache& cache = runtime.cache<GemmCache>();
  const std::scoped_lock lock(cache.mutex);
  if (const auto found = cache.products.find(shape); found != cache.products.end()) {
    return *found->second;
  }
  std::unique_ptr<Gemm> product = make(runtime.target(), shape);  // no entry if it throws
  TESSERA_CHECK(product->workspace_bytes() <= gemm_workspace_bytes(runtime.target(), shape) &&
                    product->packed_bytes() <= gemm_packed_bytes(runtime.target(), shape),
                "a product that takes more memory than a plan gives it");
  if (product->reduced()) {
    Logger().warn(
        "a matrix product [{}, {}] x [{}, {}] of {} does with less memory than this oneDNN asks "
        "for, and is slower: its plan has no more. Please report it with the library's version",
        shape.m, shape.k, shape.k, shape.n, dtype_name(shape.input));
  }
  const bool counted = cache.counter != nullptr && runtime.accelerator() == nullptr;
  if (counted) cache.counter->count(*product);
  return *cache.products.emplace(shape, std::move(product)).first->second;
}

GemmCounter::GemmCounter(Runtime& runtime) : runtime_(runtime) {
  GemmCache& cache = runtime.cache<GemmCache>();
  TESSERA_CHECK(cache.counter == nullptr, "the products of this runtime are counted already");
  cache.counter = this;
  cache.issued.clear();
  if (runtime.accelerator() != nullptr) return;
  for (const auto& [shape, product] : cache.products) count(*product);
}

GemmCounter::~GemmCounter() {
  GemmCache& cache = runtime_.cache<GemmCache>();
  cache.counter = nullptr;
  if (runtime_.accelerator() != nullptr) return;
  for (const auto& [shape, product] : cache.products) product->counted_ = false;
}

void GemmCounter::count(Gemm& product) {
  product.counted_ = true;
  product.runs_ = 0;
}

void count_issued(Runtime& runtime, const GemmShape& shape) {
  GemmCache& cache = runtime.cache<GemmCache>();
  if (cache.counter != nullptr) ++cache.issued[with_leading(shape)];
}

std::vector<GemmRuns> GemmCounter::take() {
  std::vector<GemmRuns> result;
  const auto add = [&](const GemmShape& shape, int64_t runs) {
    if (runs > 0 && shape.flops() > 0) result.push_back({shape, runs});
  };
  GemmCache& cache = runtime_.cache<GemmCache>();
  if (runtime_.accelerator() != nullptr) {
    for (const auto& [shape, runs] : cache.issued) add(shape, runs);
    cache.issued.clear();
  } else {
    for (const auto& [shape, product] : cache.products) add(shape, product->runs_.exchange(0));
  }
  std::ranges::sort(result, [](const GemmRuns& a, const GemmRuns& b) {
    const auto work = [](const GemmRuns& of) {
      return of.shape.flops() * static_cast<double>(of.runs);
    };
    if (work(a) != work(b)) return work(a) > work(b);
    return fields_of(a.shape) < fields_of(b.shape);
  });
  return result;
}

}  // namespace tessera
