#include "ops/update/muon_momentum.h"

#include <cmath>
#include <numeric>

#include "ops/support.h"
#include "ops/update/device_table.h"
#include "ops/update/matrix_labels.h"
#include "ops/update/muon_kernels.h"
#include "ops/update/section.h"

namespace tessera {
namespace {

// g = scale * gradient; m = decay * m + g; out = g + decay * m
template <typename Wide, typename T>
void update_momentum(Wide scale, Wide decay, int64_t begin, int64_t end, const Wide* gradient,
                     Wide* momentum, T* out) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const Wide g = scale * gradient[i];
    const Wide m = decay * momentum[i] + g;
    momentum[i] = m;
    out[i] = static_cast<T>(g + decay * m);
  }
}

/// inputs: the scale, the gradients, the momenta, which are updated; outputs: the matrices to
/// orthogonalise.
class UpdateMomentum final : public Operation {
 public:
  UpdateMomentum(size_t matrices, double momentum, DType dtype)
      : matrices_(matrices), momentum_(momentum), dtype_(dtype) {}
  std::string_view name() const override { return "muon_momentum"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const auto matrices = inputs.subspan(1, matrices_);
    return "u!, " + matrices_labels(matrices, ", ") + " -> " + matrices_labels(matrices, ", ") +
           ", " + matrices_labels(matrices, ", ", "+= ");
  }
  HandRule hand_rule() const override { return matrices_rule(name(), 1, 2); }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1 + 2 * matrices_, "{} inputs", inputs.size());
    TESSERA_EXPECT(*this, inputs[0].shape == Shape{1} && inputs[0].dtype == DType::f64,
                   "a scale {} {}; f64 [1] is expected", dtype_name(inputs[0].dtype),
                   inputs[0].shape.text());
    std::vector<Spec> outputs;
    for (size_t i = 0; i < matrices_; ++i) {
      const Spec& gradient = inputs[1 + i];
      const Spec& momentum = inputs[1 + matrices_ + i];
      TESSERA_EXPECT(*this,
                     has_matrices(gradient.shape) && gradient.shape == momentum.shape &&
                         gradient.dtype == accumulation_dtype(dtype_) &&
                         momentum.dtype == gradient.dtype,
                     "a momentum {} {} with a gradient {} {}", dtype_name(momentum.dtype),
                     momentum.shape.text(), dtype_name(gradient.dtype), gradient.shape.text());
      outputs.push_back({gradient.shape, dtype_, {}});
    }
    return outputs;
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> momenta(matrices_);
    std::iota(momenta.begin(), momenta.end(), static_cast<int>(1 + matrices_));
    return momenta;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<MuonMomentumRow<float>>(matrices_);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const double scale = *execution.inputs[0].data<double>();
    const SectionPieces pieces(sections(execution));
    pieces.for_each(execution.runtime.threads(),
                    [&](int64_t, size_t matrix, int64_t begin, int64_t end) {
                      dispatch_floating(dtype_, [&](auto type) {
                        update_piece<decltype(type)>(execution, scale, matrix, begin, end);
                      });
                    });
  }

 private:
  void run_on_device(const Execution& execution) const {
    for_vendor(*execution.stream, [&](auto vendor) {
      dispatch_device(dtype_, [&](auto type) {
        using T = decltype(type);
        std::vector<MuonMomentumRow<T>> rows;
        for (size_t i = 0; i < matrices_; ++i) {
          rows.push_back({.count = execution.outputs[i].elements(),
                          .gradient = execution.inputs[1 + i].pointer<float>(),
                          .momentum = execution.inputs[1 + matrices_ + i].pointer<float>(),
                          .out = execution.outputs[i].pointer<T>()});
        }
        muon_momentum_device<decltype(vendor), T>(execution.inputs[0].pointer<double>(), momentum_,
                                                  put_table(execution, std::move(rows)),
                                                  *execution.stream);
      });
    });
  }

  std::vector<Section> sections(const Execution& execution) const {
    std::vector<Section> result;
    for (size_t i = 0; i < matrices_; ++i) {
      result.push_back({static_cast<int>(i), 0, execution.outputs[i].elements()});
    }
    return result;
  }

  template <typename T>
  void update_piece(const Execution& execution, double scale, size_t matrix, int64_t begin,
                    int64_t end) const {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    T* const out = execution.outputs[matrix].data<T>();
    if (std::isnan(scale)) return std::fill(out + begin, out + end, static_cast<T>(Wide{0}));
    update_momentum(static_cast<Wide>(scale), static_cast<Wide>(momentum_), begin, end,
                    execution.inputs[1 + matrix].data<Wide>(),
                    execution.inputs[1 + matrices_ + matrix].data<Wide>(), out);
  }

  size_t matrices_;
  double momentum_;
  DType dtype_;
};

}  // namespace

std::vector<Value> muon_momentum(Builder& builder, Value scale,
                                 std::span<const MuonMomentum> matrices, double momentum,
                                 DType dtype) {
  std::vector<Value> inputs{scale};
  for (const MuonMomentum& matrix : matrices) inputs.push_back(matrix.gradient);
  for (const MuonMomentum& matrix : matrices) inputs.push_back(matrix.momentum);
  return builder.apply(std::make_shared<UpdateMomentum>(matrices.size(), momentum, dtype),
                       std::move(inputs));
}

}  // namespace tessera
