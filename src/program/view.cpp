// Views of a value, and the gradient of a value that has views. ViewOperation names a part of a
// value's memory; nothing runs for it. It has no gradient rule: differentiate() collects the
// gradients of a value's views, and JoinParts adds them up into the value's gradient.

#include "program/view.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "device/vendor.h"
#include "program/conversion.h"
#include "program/join_parts_kernels.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// Returns labels that no input has, so that the dims of an output are whole.
std::string numbered_labels(int rank) {
  std::string labels;
  for (int dim = 0; dim < rank; ++dim) labels += fmt::format(" d{}", dim);
  return labels;
}

/// Returns the expected type of a part of a unit on one axis, as text, or none if the part has it:
/// split along one of its dims if the unit is flat there, and otherwise the unit's type.
std::optional<std::string> expected_of_part(const TypeOnAxis& unit, const TypeOnAxis& part,
                                            const Shape& shape) {
  const bool flat = unit.split() && unit.pieces.kind == PieceKind::flat;
  const bool has_dim = !part.split() || part.dim < shape.rank();
  if (has_dim && (flat ? part.placement == Placement::sharded : part == unit)) return std::nullopt;
  return flat ? "one of its dims to be split" : unit.text();
}

/// Adds up parts of one value. Inputs: the parts. Output: the value, zero outside the parts.
class JoinParts final : public Operation {
 public:
  JoinParts(std::vector<int64_t> firsts, const Shape& whole, std::optional<Distribution> unit)
      : firsts_(std::move(firsts)), whole_(whole), unit_(std::move(unit)) {}
  std::string_view name() const override { return "join_parts"; }

  std::string labels(std::span<const Spec> inputs) const override {
    std::string labels;
    for (size_t i = 0; i < inputs.size(); ++i) {
      labels += i == 0 ? "~" : " + ~";
      for (int dim = 0; dim < inputs[i].shape.rank(); ++dim) {
        labels += fmt::format("p{}_{}! ", i, dim);
      }
    }
    return labels + "->" + numbered_labels(whole_.rank());
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    if (!unit_) return std::nullopt;
    for (const TypedOperand& part : inputs) require_part(mesh, part);
    return std::vector{*unit_};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_CHECK(inputs.size() == firsts_.size(), "join_parts: {} parts, {} offsets",
                  inputs.size(), firsts_.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      TESSERA_CHECK(firsts_[i] >= 0 && inputs[i].dtype == inputs[0].dtype &&
                        firsts_[i] + inputs[i].shape.elements() <= whole_.elements(),
                    "join_parts: {} {} at element {} of {} {}", dtype_name(inputs[i].dtype),
                    inputs[i].shape.text(), firsts_[i], dtype_name(inputs[0].dtype), whole_.text());
    }
    return {{whole_, inputs[0].dtype}};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    double bytes = static_cast<double>(outputs[0].bytes());
    // A part is read, and the elements of the whole that it is added to are read and written.
    for (const Spec& input : inputs) bytes += 3 * static_cast<double>(input.bytes());
    return {.bytes = bytes};
  }
  void run(const Execution& execution) const override {
    const Tensor& whole = execution.outputs[0];
    if (execution.stream != nullptr) return run_on_device(execution, whole);
    whole.fill_zero();
    dispatch_floating(whole.dtype(), [&](auto type) {
      using T = decltype(type);
      for (size_t i = 0; i < firsts_.size(); ++i) {
        const T* part = execution.inputs[i].data<T>();
        T* sums = whole.data<T>() + firsts_[i];
        constexpr int64_t kGrain = 1 << 16;  // elements that are worth another thread
        parallel_ranges(execution.runtime.threads(), execution.inputs[i].elements(), kGrain,
                        [=](int64_t begin, int64_t end, int) {
                          for (int64_t e = begin; e < end; ++e) {
                            // Parts may overlap each other, so they are added, not copied.
                            sums[e] = static_cast<T>(static_cast<Compute<T>>(sums[e]) +
                                                     static_cast<Compute<T>>(part[e]));
                          }
                        });
      }
    });
  }

 private:
  /// Launches the kernel for up to kMaxParts parts at a time.
  void run_on_device(const Execution& execution, const Tensor& whole) const {
    for_vendor(*execution.stream, [&](auto vendor) {
      dispatch_device(whole.dtype(), [&](auto type) {
        using T = decltype(type);
        constexpr size_t kMaxParts = PartSums<T>::kMaxParts;
        for (size_t begin = 0; begin < firsts_.size(); begin += kMaxParts) {
          PartSums<T> sums{};
          sums.onto_zeros = begin == 0;
          sums.whole = whole.pointer<T>();
          sums.whole_elements = whole.elements();
          for (size_t i = begin; i < std::min(begin + kMaxParts, firsts_.size()); ++i) {
            const Tensor& part = execution.inputs[i];
            sums.parts[static_cast<size_t>(sums.part_count++)] = {part.pointer<T>(), firsts_[i],
                                                                  firsts_[i] + part.elements()};
          }
          sum_parts_device<decltype(vendor)>(sums, *execution.stream);
        }
      });
    });
  }

  /// Throws DistributionError unless a part could be a view of the unit.
  void require_part(const Mesh& mesh, const TypedOperand& part) const {
    const Distribution& distribution = part.spec.distribution;
    if (distribution.view() == unit_->view() &&
        std::ranges::all_of(mesh.axes_of(distribution.view()), [&](Axis axis) {
          return !expected_of_part(unit_->on(axis), distribution.on(axis), part.spec.shape);
        })) {
      return;
    }
    throw DistributionError(fmt::format("join_parts: '{}' is {}; expected a part of what is {}",
                                        part.name, distribution.text(mesh), unit_->text(mesh)));
  }

  std::vector<int64_t> firsts_;
  Shape whole_;
  std::optional<Distribution> unit_;
};

/// The relation of a named view to the value whose memory it is.
enum class PartKind : uint8_t {
  of_unit,  ///< one of the parts of a unit
  retyped,  ///< all of the value, under another type on axes of one rank
  crossed,  ///< all of the value, in the other view of the mesh
};

/// The name and the distribution of a named view.
struct Part {
  std::string name;
  Distribution distribution;
  PartKind kind = PartKind::of_unit;
};

/// Names a part of its input's memory. Without a `part`, the labels give its type.
class ViewOperation final : public Operation {
 public:
  ViewOperation(int64_t first, const Shape& shape, DType dtype, std::optional<Part> part = {})
      : first_(first),
        shape_(shape),
        byte_offset_(first * dtype_size(dtype)),
        part_(std::move(part)) {}
  std::string_view name() const override { return "view"; }

  std::string labels(std::span<const Spec> inputs) const override {
    std::string labels = "~";
    for (int dim = 0; dim < inputs[0].shape.rank(); ++dim) labels += fmt::format("w{}! ", dim);
    return labels + "->" + numbered_labels(shape_.rank());
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    if (!part_) return std::nullopt;
    const TypedOperand& value = inputs[0];
    const Distribution& distribution = value.spec.distribution;
    if (part_->kind == PartKind::crossed) {
      return std::vector{crossed(mesh, value, part_->distribution.view())};
    }
    if (part_->distribution.view() != distribution.view()) {
      refuse(
          value, fmt::format("{} in one view of the mesh", distribution.text(mesh)),
          fmt::format("{} in the other; expected the same view", part_->distribution.text(mesh)));
    }
    for (const Axis axis : mesh.axes_of(distribution.view())) {
      const TypeOnAxis& whole = distribution.on(axis);
      const auto expected = expected_instead(mesh, axis, whole);
      if (!expected) continue;
      refuse(value, fmt::format("{} on {}", whole.text(), mesh.name(axis)),
             fmt::format("{}; expected {}", part_->distribution.on(axis).text(), *expected));
    }
    return std::vector{part_->distribution};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const Spec& whole = inputs[0];
    TESSERA_CHECK(first_ >= 0 && first_ + shape_.elements() <= whole.shape.elements(),
                  "view: {} at element {} of {}", shape_.text(), first_, whole.shape.text());
    return {{shape_, whole.dtype}};
  }
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{0, byte_offset_}; }
  void run(const Execution&) const override {}

 private:
  /// Returns the expected type of the part on one axis, as text, or none if the part has it.
  std::optional<std::string> expected_instead(const Mesh& mesh, Axis axis,
                                              const TypeOnAxis& whole) const {
    const TypeOnAxis& part = part_->distribution.on(axis);
    if (part_->kind == PartKind::of_unit) return expected_of_part(whole, part, shape_);
    if (mesh.size(axis) == 1 || part == whole) return std::nullopt;
    return whole.text();
  }

  [[noreturn]] void refuse(const TypedOperand& value, const std::string& whole,
                           const std::string& part) const {
    throw DistributionError(fmt::format("view: '{}' is {}, and '{}' {}, a part of it, is {}",
                                        value.name, whole, part_->name, shape_.text(), part));
  }

  int64_t first_;
  Shape shape_;
  int64_t byte_offset_;
  std::optional<Part> part_;
};

Value named_view(Builder& builder, Value value, int64_t first, const Shape& shape,
                 const Part& part) {
  const Value result = builder.apply_single(
      std::make_shared<ViewOperation>(first, shape, builder.spec(value).dtype, part), {value});
  builder.name_as(result, part.name);
  return result;
}

}  // namespace

Value join_parts(Builder& builder, std::vector<Value> parts, std::vector<int64_t> firsts,
                 const Shape& whole, const std::optional<Distribution>& unit) {
  return builder.apply_single(std::make_shared<JoinParts>(std::move(firsts), whole, unit),
                              std::move(parts));
}

Value view(Builder& builder, Value whole, int64_t first, const Shape& shape) {
  return builder.apply_single(
      std::make_shared<ViewOperation>(first, shape, builder.spec(whole).dtype), {whole});
}

Value view(Builder& builder, Value unit, int64_t first, const Shape& shape,
           const Distribution& distribution, std::string name) {
  return named_view(builder, unit, first, shape,
                    {.name = std::move(name), .distribution = distribution});
}

Value retype_on_single_ranks(Builder& builder, Value value, const Distribution& distribution,
                             std::string name) {
  return named_view(
      builder, value, 0, builder.spec(value).shape,
      {.name = std::move(name), .distribution = distribution, .kind = PartKind::retyped});
}

Value in_view(Builder& builder, Value value, MeshView view, std::string name) {
  return named_view(
      builder, value, 0, builder.spec(value).shape,
      {.name = std::move(name), .distribution = Distribution(view), .kind = PartKind::crossed});
}

}  // namespace tessera
