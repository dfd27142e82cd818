#include "ops/update/muon_passes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "ops/support.h"
#include "ops/update/device_table.h"
#include "ops/update/matrix_labels.h"
#include "ops/update/muon_kernels.h"
#include "ops/update/section.h"

namespace tessera {
namespace {

// Each pass is one operation over all matrices. On the processor, threads share pieces of them, and
// update_momentum() or apply_update() handles a piece. On a device, a pass is one launch.

/// Calls update(T{}, matrix index, begin, end) for pieces of all matrices, on all threads. T is the
/// type of `matrices`, in which they are orthogonalised.
template <typename Update>
void for_matrix_pieces(const Execution& execution, std::span<const Tensor> matrices,
                       Update&& update) {
  std::vector<Section> sections;
  for (size_t i = 0; i < matrices.size(); ++i) {
    sections.push_back({static_cast<int>(i), 0, matrices[i].elements()});
  }
  SectionPieces(sections).for_each(
      execution.runtime.threads(), [&](int64_t, size_t matrix, int64_t begin, int64_t end) {
        dispatch_floating(matrices[matrix].dtype(),
                          [&](auto type) { update(type, matrix, begin, end); });
      });
}

/// Computes g = scale * gradient; m = decay * m + g; out = g + decay * m, where `decay` is Muon's
/// μ. The elements do not depend on each other (ivdep).
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

/// inputs: the scale, the gradients, the momenta (updated); outputs: the matrices to orthogonalise.
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
    TESSERA_EXPECT(*this, is_like(inputs[0], {{1}, DType::f64}), "a scale {}; f64 [1] is expected",
                   text_of(inputs[0]));
    std::vector<Spec> outputs;
    for (size_t i = 0; i < matrices_; ++i) {
      const Spec& gradient = inputs[1 + i];
      const Spec& momentum = inputs[1 + matrices_ + i];
      TESSERA_EXPECT(*this,
                     has_matrices(gradient.shape) && gradient.shape == momentum.shape &&
                         gradient.dtype == accumulation_dtype(dtype_) &&
                         momentum.dtype == gradient.dtype,
                     "a momentum {} with a gradient {}", text_of(momentum), text_of(gradient));
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
    for_matrix_pieces(execution, execution.outputs.first(matrices_),
                      [&]<typename T>(T, size_t matrix, int64_t begin, int64_t end) {
                        using Wide = Compute<T>;
                        T* const out = execution.outputs[matrix].data<T>();
                        if (std::isnan(scale)) {
                          return std::fill(out + begin, out + end, static_cast<T>(Wide{0}));
                        }
                        update_momentum(static_cast<Wide>(scale), static_cast<Wide>(momentum_),
                                        begin, end, execution.inputs[1 + matrix].data<Wide>(),
                                        execution.inputs[1 + matrices_ + matrix].data<Wide>(), out);
                      });
  }

 private:
  void run_on_device(const Execution& execution) const {
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      dispatch_device(dtype_, [&]<typename T>(T) {
        std::vector<MuonMomentumRow<T>> rows;
        for (size_t i = 0; i < matrices_; ++i) {
          rows.push_back({.count = execution.outputs[i].elements(),
                          .gradient = execution.inputs[1 + i].pointer<float>(),
                          .momentum = execution.inputs[1 + matrices_ + i].pointer<float>(),
                          .out = execution.outputs[i].pointer<T>()});
        }
        muon_momentum_device<Vendor, T>(execution.inputs[0].pointer<double>(), momentum_,
                                        put_table(execution, std::move(rows)), *execution.stream);
      });
    });
  }

  size_t matrices_;
  double momentum_;
  DType dtype_;
};

/// Computes w = keep * w - step_size * update, with keep = 1 - lr * decay, step_size = lr * factor.
/// The elements do not depend on each other (ivdep).
template <typename Wide, typename T, typename Weight>
void apply_update(Wide keep, Wide step_size, int64_t begin, int64_t end, const T* update,
                  Wide* master, Weight* weight) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const Wide w = keep * master[i] - step_size * static_cast<Wide>(update[i]);
    master[i] = w;
    weight[i] = static_cast<Weight>(w);
  }
}

/// inputs: the scale, the learning rate, the updates, the masters, and the weights if rounded.
class ApplyMuon final : public Operation {
 public:
  ApplyMuon(std::span<const MuonMatrix> matrices, bool rounds, double weight_decay)
      : matrices_(matrices.begin(), matrices.end()), rounds_(rounds), weight_decay_(weight_decay) {}
  std::string_view name() const override { return "muon_update"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const auto updates = inputs.subspan(2, matrices_.size());
    std::string text = "u!, u!, " + matrices_labels(updates, ", ") + " -> " +
                       matrices_labels(updates, ", ", "+= ");
    if (rounds_) text += ", " + matrices_labels(updates, ", ", "+= ");
    return text;
  }
  HandRule hand_rule() const override { return matrices_rule(name(), 2, rounds_ ? 2 : 1); }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t count = matrices_.size();
    TESSERA_EXPECT(*this, inputs.size() == 2 + count * (rounds_ ? 3 : 2), "{} inputs",
                   inputs.size());
    for (size_t i = 0; i < 2; ++i) {
      TESSERA_EXPECT(*this, is_like(inputs[i], {{1}, DType::f64}),
                     "input {} is {}; f64 [1] is expected", i, text_of(inputs[i]));
    }
    for (size_t i = 0; i < count; ++i) {
      const Spec& update = inputs[2 + i];
      const Spec& master = inputs[2 + count + i];
      TESSERA_EXPECT(*this,
                     has_matrices(update.shape) && master.shape == update.shape &&
                         master.dtype == accumulation_dtype(update.dtype) &&
                         rounds_ == (update.dtype != master.dtype),
                     "a master {} with an update {}", text_of(master), text_of(update));
      TESSERA_EXPECT(*this, !rounds_ || is_like(inputs[2 + 2 * count + i], update),
                     "a weight that is not {}", text_of(update));
    }
    return {};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> updated(matrices_.size() * (rounds_ ? 2 : 1));
    std::iota(updated.begin(), updated.end(), static_cast<int>(2 + matrices_.size()));
    return updated;
  }

  /// Counts updates as read, masters as read and written, and rounded weights as written.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    double bytes = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      bytes += static_cast<double>(inputs[2 + i].bytes()) * (rounds_ ? 2 : 1) +
               2 * static_cast<double>(inputs[2 + matrices_.size() + i].bytes());
    }
    return {.bytes = bytes};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec>) const override {
    return target.device == Device::cpu ? 0 : table_bytes<MuonUpdateRow<float>>(matrices_.size());
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    if (std::isnan(*execution.inputs[0].data<double>())) return;
    const double rate = *execution.inputs[1].data<double>();
    for_matrix_pieces(
        execution, execution.inputs.subspan(2, matrices_.size()),
        [&]<typename T>(T, size_t matrix, int64_t begin, int64_t end) {
          using Wide = Compute<T>;
          const MuonMatrix& step = matrices_[matrix];
          const size_t master = 2 + matrices_.size() + matrix;
          const size_t weight = rounds_ ? master + matrices_.size() : master;
          apply_update(static_cast<Wide>(1.0 - (step.decays ? rate * weight_decay_ : 0.0)),
                       static_cast<Wide>(rate * step.factor), begin, end,
                       execution.inputs[2 + matrix].data<T>(),
                       execution.inputs[master].data<Wide>(), execution.inputs[weight].data<T>());
        });
  }

 private:
  void run_on_device(const Execution& execution) const {
    const size_t count = matrices_.size();
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      dispatch_device(execution.inputs[2].dtype(), [&]<typename T>(T) {
        std::vector<MuonUpdateRow<T>> rows;
        for (size_t i = 0; i < count; ++i) {
          rows.push_back(
              {.count = execution.inputs[2 + i].elements(),
               .decays = matrices_[i].decays ? 1 : 0,
               .factor = std::bit_cast<int64_t>(matrices_[i].factor),
               .update = execution.inputs[2 + i].pointer<T>(),
               .master = execution.inputs[2 + count + i].pointer<float>(),
               .weight = rounds_ ? execution.inputs[2 + 2 * count + i].pointer<T>() : nullptr});
        }
        muon_update_device<Vendor, T>(execution.inputs[0].pointer<double>(),
                                      execution.inputs[1].pointer<double>(), weight_decay_,
                                      put_table(execution, std::move(rows)), *execution.stream);
      });
    });
  }

  std::vector<MuonMatrix> matrices_;
  bool rounds_;
  double weight_decay_;
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

double muon_factor(const Shape& shape) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(shape.dim(-1), shape.dim(-2))));
}

void muon_update(Builder& builder, const MuonInputs& inputs, std::span<const MuonMatrix> matrices,
                 double weight_decay) {
  std::vector<Value> values{inputs.scale, inputs.learning_rate};
  for (const MuonMatrix& matrix : matrices) values.push_back(matrix.update);
  for (const MuonMatrix& matrix : matrices) values.push_back(matrix.master);
  const bool rounds = matrices.front().weight.has_value();
  for (const MuonMatrix& matrix : matrices) {
    TESSERA_CHECK(matrix.weight.has_value() == rounds,
                  "a matrix with a rounded weight beside one without");
    if (matrix.weight) values.push_back(*matrix.weight);
  }
  builder.apply(std::make_shared<ApplyMuon>(matrices, rounds, weight_decay), std::move(values));
}

}  // namespace tessera
