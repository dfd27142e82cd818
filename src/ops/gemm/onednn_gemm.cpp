#include <omp.h>

#include "ops/gemm/plain_gemm.h"
#include "ops/support.h"

#ifdef TESSERA_ONEDNN

#include <dnnl.hpp>

namespace tessera {
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

/// oneDNN plans a primitive for the calling thread's OpenMP team; this sets the team's size for a
/// while.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~TeamSize() { omp_set_num_threads(before_); }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_;
};

class OneDnnGemm final : public Gemm {
 public:
  explicit OneDnnGemm(const GemmShape& shape)
      : threads_(shape.threads),
        engine_(dnnl::engine::kind::cpu, 0),
        a_(matrix(shape.m, shape.k, shape.lda, shape.transpose_a, shape.input)),
        plain_b_(matrix(shape.k, shape.n, shape.ldb, shape.transpose_b, shape.input)),
        c_(matrix(shape.m, shape.n, shape.ldc, false, shape.output)) {
    const TeamSize team(threads_);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::memory::desc free_b({shape.k, shape.n}, onednn_type(shape.input),
                                    dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc description({a_, shape.packed_b ? free_b : plain_b_, c_},
                                                   attributes, engine_);
    primitive_ = dnnl::matmul(description);
    scratchpad_ = description.scratchpad_desc();
    b_ = description.weights_desc();
    if (b_ != plain_b_) {
      packing_ = dnnl::reorder(
          dnnl::reorder::primitive_desc(engine_, plain_b_, engine_, b_, dnnl::primitive_attr()));
    }
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(scratchpad_.get_size()); }

  int64_t packed_bytes() const override {
    return packing_ ? static_cast<int64_t>(b_.get_size()) : 0;
  }

  const void* pack(const void* b, std::byte* memory) const override {
    if (!packing_) return b;
    const TeamSize team(threads_);
    dnnl::stream stream(engine_);
    dnnl::memory plain(plain_b_, engine_, const_cast<void*>(b));
    dnnl::memory packed(b_, engine_, memory);
    packing_.execute(stream, plain, packed);
    return memory;
  }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    dnnl::stream stream(engine_);
    const auto bind = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine_, const_cast<void*>(data));
    };
    const std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, bind(a_, a)},
        {DNNL_ARG_WEIGHTS, bind(b_, b)},
        {DNNL_ARG_DST, bind(c_, c)},
        {DNNL_ARG_SCRATCHPAD, bind(scratchpad_, workspace)}};
    if (omp_in_parallel() != 0) {
      primitive_.execute(stream, arguments);
    } else {
      const TeamSize team(threads_);
      primitive_.execute(stream, arguments);
    }
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::memory::desc a_;
  dnnl::memory::desc plain_b_;
  dnnl::memory::desc b_;  // as the product takes it
  dnnl::memory::desc c_;
  dnnl::memory::desc scratchpad_;
  dnnl::matmul primitive_;
  dnnl::reorder packing_;  // empty where B is taken as it lies
};

}  // namespace

std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape) {
  try {
    return std::make_unique<OneDnnGemm>(shape);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    throw Error("this processor has no {} matrix product in oneDNN{}", dtype_name(shape.input),
                shape.input == DType::bf16 ? "; set train.precision = \"fp32\"" : "");
  }
}

}  // namespace tessera

#else

namespace tessera {

std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape&) { return nullptr; }

}  // namespace tessera

#endif
