#include <algorithm>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include <omp.h>

#include "base/threads.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"

// Matrix products by oneDNN. make_onednn_gemm() describes a GemmShape to the library, which makes a
// primitive: a kernel compiled for this shape and this processor. OneDnnGemm runs it. Where
// widens() says so, a product of bf16 is computed in f32 instead (widened_gemm.cpp): gemm.cpp tells
// when. A product that asks for more scratch memory than gemm_workspace_bytes() planned is cut into
// products of fewer rows (SplitGemm).

#ifdef TESSERA_ONEDNN
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <dnnl.hpp>
#endif

namespace tessera {
namespace {

/// A product in two halves of A's rows. Both halves read the same B.
class SplitGemm final : public Gemm {
 public:
  SplitGemm(const GemmShape& shape, const MakeGemm& make)
      : rows_(shape.m / 2),
        a_bytes_(rows_ * (shape.transpose_a ? 1 : shape.lda) * dtype_size(shape.input)),
        c_bytes_(rows_ * shape.ldc * dtype_size(shape.output)),
        first_(make(part(shape, rows_))),
        second_(make(part(shape, shape.m - rows_))) {}

  int64_t workspace_bytes() const override {
    return std::max(first_->workspace_bytes(), second_->workspace_bytes());
  }

  bool reduced() const override { return true; }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    first_->run(a, b, c, workspace);
    second_->run(static_cast<const std::byte*>(a) + a_bytes_, b,
                 static_cast<std::byte*>(c) + c_bytes_, workspace);
  }

 private:
  static GemmShape part(GemmShape shape, int64_t rows) {
    shape.m = rows;
    return shape;
  }

  int64_t rows_;
  int64_t a_bytes_;  // from the first half's rows of A to the second half's
  int64_t c_bytes_;
  std::unique_ptr<Gemm> first_;
  std::unique_ptr<Gemm> second_;
};

}  // namespace

std::unique_ptr<Gemm> make_split_gemm(GemmShape shape, const MakeGemm& make) {
  TESSERA_CHECK(shape.m > 1 && shape.lda > 0 && shape.ldc > 0,
                "a product of {} rows is not cut, nor one with leading dimensions left out",
                shape.m);
  shape.packed_b = false;
  return std::make_unique<SplitGemm>(shape, make);
}

#ifdef TESSERA_ONEDNN

namespace {

dnnl::memory::data_type onednn_type(DType dtype) {
  TESSERA_CHECK(dtype == DType::f32 || dtype == DType::bf16, "oneDNN has no product of {}",
                dtype_name(dtype));
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t leading, bool transposed,
                          DType dtype) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1};
  return {{rows, columns}, onednn_type(dtype), strides};
}

/// A guard that sets the size of the calling thread's OpenMP team. oneDNN plans a primitive for
/// that team, and computes only some of the result if OpenMP starts a smaller one. So OpenMP may
/// not choose the size meanwhile, as it does under OMP_DYNAMIC.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) {
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
  }
  ~TeamSize() {
    omp_set_num_threads(before_);
    omp_set_dynamic(dynamic_);
  }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_;
  int dynamic_;
};

/// The arguments of a primitive: a stream, and memories whose data each run sets.
struct Call {
  Call(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& product)
      : stream(engine),
        arguments{{DNNL_ARG_SRC, {product.src_desc(), engine, nullptr}},
                  {DNNL_ARG_WEIGHTS, {product.weights_desc(), engine, nullptr}},
                  {DNNL_ARG_DST, {product.dst_desc(), engine, nullptr}},
                  {DNNL_ARG_SCRATCHPAD, {product.scratchpad_desc(), engine, nullptr}}} {}

  /// The library takes addresses of operands that it only reads as void*, hence the cast.
  void set(int argument, const void* data) {
    arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }

  dnnl::stream stream;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// Calls that runs use again, at most one for each thread of a team. Making a call takes more than
/// a microsecond, which is long compared with the product of a tile.
class ReusedCalls {
 public:
  explicit ReusedCalls(int threads) : slots_(static_cast<size_t>(threads)) {}

  /// Runs `use` with the calling thread's call, which no other thread has meanwhile. `make` makes a
  /// call if there is none yet, or if a thread with the same number in another team has it.
  template <typename Make, typename Use>
  void with(const Make& make, const Use& use) {
    Slot& slot = slots_[static_cast<size_t>(omp_get_thread_num()) % slots_.size()];
    std::unique_ptr<Call> call(slot.call.exchange(nullptr));
    if (!call) call = make();
    use(*call);
    // Puts the call back, and destroys one that another thread has put there meanwhile.
    call.reset(slot.call.exchange(call.release()));
  }

 private:
  struct alignas(64) Slot {  // a cache line each
    ~Slot() { delete call.load(); }
    std::atomic<Call*> call = nullptr;
  };
  std::vector<Slot> slots_;
};

dnnl::memory::desc matrix_a(const GemmShape& shape) {
  return matrix(shape.m, shape.k, shape.lda, shape.transpose_a, shape.input);
}

dnnl::memory::desc matrix_b(const GemmShape& shape) {
  return matrix(shape.k, shape.n, shape.ldb, shape.transpose_b, shape.input);
}

/// Describes the primitive for the calling thread's team. If the shape has packed_b, the primitive
/// chooses the layout of B.
dnnl::matmul::primitive_desc describe(const GemmShape& shape, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::memory::desc any_b({shape.k, shape.n}, onednn_type(shape.input),
                                 dnnl::memory::format_tag::any);
  const dnnl::memory::desc c = matrix(shape.m, shape.n, shape.ldc, false, shape.output);
  return {{matrix_a(shape), shape.packed_b ? any_b : matrix_b(shape), c}, attributes, engine};
}

/// oneDNN's primitive for one shape, and the primitive that copies B to its layout. `callers` is
/// the number of threads that may run the product at once and find a call to use again.
class OneDnnGemm final : public Gemm {
 public:
  OneDnnGemm(const GemmShape& shape, int callers)
      : threads_(std::min(shape.threads, team_limit().threads)),
        engine_(dnnl::engine::kind::cpu, 0),
        plain_b_(matrix_b(shape)),
        calls_(callers) {
    const TeamSize team(threads_);
    description_ = describe(shape, engine_);
    primitive_ = dnnl::matmul(description_);
    const dnnl::memory::desc b = description_.weights_desc();
    if (b != plain_b_) {
      packing_ = dnnl::reorder(
          dnnl::reorder::primitive_desc(engine_, plain_b_, engine_, b, dnnl::primitive_attr()));
    }
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>(description_.scratchpad_desc().get_size());
  }

  int64_t packed_bytes() const override {
    return packing_ ? static_cast<int64_t>(description_.weights_desc().get_size()) : 0;
  }

  const void* pack(const void* b, std::byte* memory) const override {
    if (!packing_) return b;
    const TeamSize team(threads_);
    dnnl::stream stream(engine_);
    dnnl::memory plain(plain_b_, engine_, const_cast<void*>(b));  // a reorder only reads it
    dnnl::memory packed(description_.weights_desc(), engine_, memory);
    packing_.execute(stream, plain, packed);
    return memory;
  }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    calls_.with([&] { return std::make_unique<Call>(engine_, description_); },
                [&](Call& call) {
                  call.set(DNNL_ARG_SRC, a);
                  call.set(DNNL_ARG_WEIGHTS, b);
                  call.set(DNNL_ARG_DST, c);
                  call.set(DNNL_ARG_SCRATCHPAD, workspace);
                  if (omp_in_parallel() != 0) {  // this thread is already one of a team
                    primitive_.execute(call.stream, call.arguments);
                  } else {
                    const TeamSize team(threads_);
                    primitive_.execute(call.stream, call.arguments);
                  }
                });
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::memory::desc plain_b_;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul primitive_;
  dnnl::reorder packing_;  // empty if B is read in its given layout
  mutable ReusedCalls calls_;
};

/// Returns the primitive for a shape. Throws Error if the library does not have it.
std::unique_ptr<Gemm> make_primitive(const GemmShape& shape, int callers) {
  try {
    return std::make_unique<OneDnnGemm>(shape, callers);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    throw Error("oneDNN has no product of {} for this processor: {} x {} x {}",
                dtype_name(shape.input), shape.m, shape.n, shape.k);
  }
}

/// A product that runs with less memory than the library asked for.
class ReducedGemm final : public Gemm {
 public:
  explicit ReducedGemm(std::unique_ptr<Gemm> product) : product_(std::move(product)) {}
  int64_t workspace_bytes() const override { return product_->workspace_bytes(); }
  bool reduced() const override { return true; }
  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    product_->run(a, b, c, workspace);
  }

 private:
  std::unique_ptr<Gemm> product_;
};

/// Returns a product within `limit` bytes of scratch memory. If the library asks for more, the
/// product is cut into products of fewer rows. If even one row takes too much, plain loops compute
/// it. If the packed B would take more than its plan has, B is read in its given layout.
std::unique_ptr<Gemm> make_within(GemmShape shape, const Target& target, int64_t limit) {
  auto product = make_primitive(shape, target.threads);
  if (product->packed_bytes() > gemm_packed_bytes(target, shape)) {
    shape.packed_b = false;
    return std::make_unique<ReducedGemm>(make_within(shape, target, limit));
  }
  if (product->workspace_bytes() <= limit) return product;
  if (shape.m == 1) return std::make_unique<ReducedGemm>(make_plain_gemm(shape));
  return make_split_gemm(shape,
                         [&](const GemmShape& part) { return make_within(part, target, limit); });
}

/// Returns whether the processor's vector units multiply bf16 slowly. Intel's cores that have AMX
/// (those with AVX-512 for f16) are meant to multiply bf16 with it: their vector units multiply f32
/// twice as fast as bf16. Some virtual machines hide AMX.
bool multiplies_bf16_slowly() {
#if defined(__x86_64__)
  constexpr unsigned kFloat16 = 1U << 23;  // AVX512_FP16, in edx of leaf 7
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_INTEL_ebx) return false;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kFloat16) != 0;
#else
  return false;
#endif
}

}  // namespace

MatrixInstructions host_instructions() {
  // A set of instructions has the bits of all sets that it includes.
  const auto bits = [](dnnl::cpu_isa isa) { return static_cast<unsigned>(isa); };
  const auto has = [&](dnnl::cpu_isa isa) {
    return (bits(dnnl::get_effective_cpu_isa()) & bits(isa)) == bits(isa);
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return MatrixInstructions::amx;
  if (has(dnnl::cpu_isa::avx512_core_bf16) && !multiplies_bf16_slowly()) {
    return MatrixInstructions::avx512_bf16;
  }
  if (has(dnnl::cpu_isa::avx512_core)) return MatrixInstructions::avx512;
  return MatrixInstructions::avx2;
}

std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, const Target& target) {
  if (widens(target, shape)) {
    return make_widened_gemm(shape,
                             [&](const GemmShape& part) { return make_onednn_gemm(part, target); });
  }
  return make_within(shape, target, gemm_workspace_bytes(target, shape));
}

#else

std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape&, const Target&) { return nullptr; }

MatrixInstructions host_instructions() { return MatrixInstructions::none; }

#endif

}  // namespace tessera
