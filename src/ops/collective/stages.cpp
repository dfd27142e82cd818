#include "ops/collective/stages.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "comm/call_list.h"
#include "comm/communicator.h"
#include "comm/wire_bytes.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// The operation of sum_over_stages(). Inputs: the values, which are updated. Several values are
/// copied one after the other into the workspace, summed there, and copied back.
class SumOverStages final : public Operation {
 public:
  SumOverStages(std::string call, Axis pipeline, std::vector<int> stages, int position,
                size_t values, bool have_copies)
      : call_(std::move(call)),
        pipeline_(pipeline),
        stages_(std::move(stages)),
        position_(position),
        have_copies_(have_copies),
        updated_(values) {
    std::iota(updated_.begin(), updated_.end(), 0);
  }

  std::string_view name() const override { return "sum_over_stages"; }
  std::string labels(std::span<const Spec>) const override { return "-> += values"; }
  Lane lane() const override { return Lane::reductions; }
  std::vector<std::vector<Axis>> group_axes() const override { return {{pipeline_}}; }
  std::span<const int> group_stages() const override { return stages_; }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};  // updated inputs have no types of their own
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Spec& value : inputs) {
      TESSERA_EXPECT(*this, value.dtype == inputs[0].dtype, "{} among values of {}", text_of(value),
                     dtype_name(inputs[0].dtype));
    }
    return {};
  }
  std::vector<int> updated_inputs() const override { return updated_; }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    const auto sent =
        all_reduce_bytes(elements_of(inputs), ranks(), position_, dtype_size(inputs[0].dtype));
    return {.bytes = operand_bytes(inputs, {}, updated_),
            .wire = {{{pipeline_}, static_cast<double>(sent)}}};
  }
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const int64_t elements = elements_of(inputs);
    const int64_t staged = target.device == Device::cpu
                               ? 0
                               : all_reduce_workspace(elements, inputs[0].dtype, ranks(),
                                                      kind_of_sum(target, have_copies_));
    return joined_bytes(inputs.size(), elements, inputs[0].dtype) + staged;
  }
  void run(const Execution& execution) const override {
    const std::span<const Tensor> values = execution.inputs;
    const DType dtype = values[0].dtype();
    int64_t elements = 0;
    for (const Tensor& value : values) elements += value.elements();
    const int64_t joined = joined_bytes(values.size(), elements, dtype);
    const DeviceCall call{.stream = execution.stream,
                          .workspace = execution.workspace.subspan(static_cast<size_t>(joined))};
    if (values.size() == 1) return reduce(execution, values[0], call);
    const Tensor all =
        Tensor::wrap(execution.workspace.data(), {elements}, dtype, values[0].accelerator());
    for_each_part(values, all,
                  [&](const Tensor& value, const Tensor& part) { copy(execution, value, part); });
    reduce(execution, all, call);
    for_each_part(values, all,
                  [&](const Tensor& value, const Tensor& part) { copy(execution, part, value); });
  }

  void list_calls(const CallListing& listing) const override {
    const std::span<const Spec> values = listing.inputs;
    // A single value is summed in its own memory, and so in its own shape.
    const Shape shape = values.size() == 1 ? values[0].shape : Shape{elements_of(values)};
    listing.group().all_reduce(call_, values[0].dtype, shape,
                               kind_of_sum(listing.target, have_copies_));
  }

 private:
  int ranks() const { return static_cast<int>(stages_.size()); }
  static int64_t elements_of(std::span<const Spec> values) {
    int64_t elements = 0;
    for (const Spec& value : values) elements += value.shape.elements();
    return elements;
  }
  static int64_t joined_bytes(size_t values, int64_t elements, DType dtype) {
    return values == 1 ? 0 : aligned_bytes(elements * dtype_size(dtype));
  }
  void reduce(const Execution& execution, const Tensor& tensor, const DeviceCall& call) const {
    execution.group().all_reduce(call_, tensor, tensor,
                                 kind_of_sum(execution.target(), have_copies_), call);
  }
  /// Calls visit(value, its part of `all`) for each value.
  template <typename Visit>
  static void for_each_part(std::span<const Tensor> values, const Tensor& all, Visit&& visit) {
    int64_t begin = 0;
    for (const Tensor& value : values) {
      visit(value, all.view(begin, value.shape()));
      begin += value.elements();
    }
  }
  std::string call_;
  Axis pipeline_;
  std::vector<int> stages_;
  int position_;      // of this rank's stage in stages_
  bool have_copies_;  // whether other groups of ranks get the same sums
  std::vector<int> updated_;
};

}  // namespace

void sum_over_stages(Builder& builder, std::string name, std::span<const Value> values,
                     std::vector<int> stages) {
  const Program& program = builder.program();
  const Mesh& mesh = program.mesh();
  const Axis pipeline = mesh.pipeline();
  if (stages.empty()) {
    stages.resize(static_cast<size_t>(mesh.size(pipeline)));
    std::iota(stages.begin(), stages.end(), 0);
  }
  if (stages.size() == 1 || values.empty()) return;
  const auto own = std::ranges::find(stages, mesh.stage(program.rank()));
  TESSERA_CHECK(own != stages.end(), "{}: stage {} has no part in the sum", name,
                mesh.stage(program.rank()));
  const int position = static_cast<int>(own - stages.begin());
  const bool have_copies = std::ranges::any_of(values, [&](Value value) {
    return builder.spec(value).distribution.has_copies_beyond(mesh, {});
  });
  builder.apply(std::make_shared<SumOverStages>(std::move(name), pipeline, std::move(stages),
                                                position, values.size(), have_copies),
                {values.begin(), values.end()});
}

}  // namespace tessera
