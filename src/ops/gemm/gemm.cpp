#include "ops/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "tensor/alignment.h"

// The matrix products of the processor; on a device, device_gemm() multiplies. An operation asks
// prepare_gemm() for the product of a GemmShape (sizes, types, layout). The first call for a shape
// makes a Gemm, which the runtime keeps. Gemm::run() then calls multiply() of the product.
//
//   prepare_gemm -> make_gemm: plain loops (f64, empty, Kernels::plain, no oneDNN: PlainGemm below)
//                            | make_onednn_gemm: widened (WidenedGemm in widened_gemm.cpp)
//                                              | make_within: one primitive, or halves of its rows
//                                                             until each fits
//
// Widened: a product of bf16 is computed in f32 if the processor has no instructions for bf16, if
// they are slow (Intel's processors with AMX that a virtual machine hides), or if it has AMX and k
// is odd, where oneDNN 2.6.3 computes some products wrongly and executes an illegal instruction in
// others (widens() in gemm_plan.h). WidenedGemm converts parts of A and of B to f32 in its scratch
// memory, about 4 MiB of each, and has another product of make_onednn_gemm() multiply the two.
//
// Packing: PackedGemm runs a product several times with the same B, and may copy B to a faster
// layout first. Only a product that is one primitive does; plain loops, widened products and halves
// of rows read B as it is.
//
// Memory is planned before a product exists, and for any target: gemm_workspace_bytes() and
// gemm_packed_bytes() (gemm_plan.cpp) bound what it takes. An operation's workspace_bytes() asks
// them, Linear's by PackedGemm::workspace_bytes(). plan_memory() reserves what it returns, and
// prepare_gemm() makes no product that takes more.

namespace tessera {
namespace {

/// A product by its definition (see make_plain_gemm()).
class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(const GemmShape& shape) : shape_(shape) {}

  int64_t workspace_bytes() const override { return 0; }

  void multiply(const void* a, const void* b, void* c, std::byte*) const override {
    dispatch_floating(shape_.input, [&]<typename In>(In) {
      dispatch_floating(shape_.output, [&]<typename Out>(Out) {
        sum_rows(static_cast<const In*>(a), static_cast<const In*>(b), static_cast<Out*>(c));
      });
    });
  }

 private:
  /// c[i, j] = Σ_p a[i, p] · b[p, j], plus the previous c[i, j] if `accumulate`.
  template <typename In, typename Out>
  void sum_rows(const In* a, const In* b, Out* c) const {
    using Wide = Compute<In>;
    const int64_t lda = shape_.lda, ldb = shape_.ldb, ldc = shape_.ldc;
    parallel_ranges(shape_.threads, shape_.m, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<Wide> sums(static_cast<size_t>(shape_.n));
      for (int64_t i = begin; i < end; ++i) {
        std::fill(sums.begin(), sums.end(), Wide{0});
        for (int64_t p = 0; p < shape_.k; ++p) {
          const auto left = static_cast<Wide>(shape_.transpose_a ? a[p * lda + i] : a[i * lda + p]);
          for (int64_t j = 0; j < shape_.n; ++j) {
            const In& right = shape_.transpose_b ? b[j * ldb + p] : b[p * ldb + j];
            sums[static_cast<size_t>(j)] += left * static_cast<Wide>(right);
          }
        }
        for (int64_t j = 0; j < shape_.n; ++j) {
          Out& result = c[i * ldc + j];
          const Wide before =
              shape_.accumulate ? static_cast<Wide>(static_cast<Compute<Out>>(result)) : Wide{0};
          result =
              static_cast<Out>(static_cast<Compute<Out>>(before + sums[static_cast<size_t>(j)]));
        }
      }
    });
  }

  GemmShape shape_;
};

/// Returns all fields of a shape, for its hash and for an order of shapes.
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

/// The products of a runtime, and its counter.
struct GemmCache {
  std::mutex mutex;  // of `products`: streams of the emulated device are threads
  std::unordered_map<GemmShape, std::unique_ptr<Gemm>, GemmShapeHash> products;
  GemmCounter* counter = nullptr;  // null: runs are not counted
  /// The number of times that each product was enqueued on a device since the last
  /// GemmCounter::take().
  std::unordered_map<GemmShape, int64_t, GemmShapeHash> issued;
};

std::unique_ptr<Gemm> make_gemm(const Target& target, const GemmShape& shape) {
  if (!shape.is_empty() && !use_plain(target, shape.input)) {
    if (auto fast = make_onednn_gemm(shape, target)) return fast;
  }
  return std::make_unique<PlainGemm>(shape);
}

/// From about this many rows of A on, packing B saves more time than it takes.
constexpr int64_t kMinPackedRows = 512;

GemmShape packed(GemmShape shape, int64_t rows) {
  shape.packed_b = rows >= kMinPackedRows;
  return shape;
}

int64_t packed_bytes(const Target& target, const GemmShape& shape) {
  return aligned_bytes(gemm_packed_bytes(target, shape));
}

int64_t scratch_bytes(const Target& target, const GemmShape& shape) {
  return aligned_bytes(gemm_workspace_bytes(target, shape));
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
  // If this throws, the cache gets no entry.
  std::unique_ptr<Gemm> product = make_gemm(runtime.target(), shape);
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

std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape) {
  return std::make_unique<PlainGemm>(shape);
}

PackedGemm::PackedGemm(Runtime& runtime, GemmShape shape, int64_t rows)
    : packed_bytes_(packed_bytes(runtime.target(), packed(shape, rows))),
      scratch_bytes_(scratch_bytes(runtime.target(), packed(shape, rows))),
      gemm_(&prepare_gemm(runtime, packed(shape, rows))) {}

int64_t PackedGemm::workspace_bytes(const Target& target, GemmShape shape, int64_t rows) {
  return packed_bytes(target, packed(shape, rows)) + scratch_bytes(target, packed(shape, rows));
}

void PackedGemm::pack(const void* b, std::byte* workspace) {
  b_ = gemm_->pack(b, workspace);
  scratch_ = workspace + packed_bytes_;
}

void PackedGemm::run(const void* a, void* c) const { gemm_->run(a, b_, c, scratch_); }

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
    const auto work = [](const GemmRuns& product) {
      return product.shape.flops() * static_cast<double>(product.runs);
    };
    if (work(a) != work(b)) return work(a) > work(b);
    return fields_of(a.shape) < fields_of(b.shape);
  });
  return result;
}

}  // namespace tessera
