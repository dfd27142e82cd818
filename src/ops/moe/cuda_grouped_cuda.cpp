#include <map>

#include "base/error.h"
#include "base/log.h"
#include "ops/gemm/random_operand.h"
#include "ops/moe/cublaslt_grouped.h"
#include "ops/moe/cuda_grouped.h"
#include "ops/moe/cutlass_product.h"

namespace tessera {
namespace {

/// The library of each shape that the runtime has multiplied.
struct GroupedChoices {
  std::map<GroupedShape, GroupedLibrary> of_shape;
};

void multiply_by(GroupedLibrary library, const Execution& execution, std::string_view operation,
                 const GroupedShape& shape, const GroupedOperands& operands, std::byte* workspace) {
  library == GroupedLibrary::cutlass
      ? multiply_by_cutlass(execution, operation, shape, operands, workspace)
      : multiply_by_cublaslt(execution, operation, shape, operands, workspace);
}

[[noreturn]] void no_library(std::string_view operation, const std::string& without_cutlass,
                             const std::string& without_cublaslt) {
  throw Error(
      "{}: no library multiplies experts in bf16 here. {}. {}. Mend one of them, or set "
      "train.precision = \"fp32\"",
      operation, without_cutlass, without_cublaslt);
}

/// The table's library, or else the first that has the product.
GroupedLibrary choose(Runtime& runtime, std::string_view operation, const GroupedShape& shape,
                      const GroupedOperands& operands, std::byte* workspace) {
  const auto& table = runtime.cache<TunedGroups>();
  const TunedGrouped* const tuned = table.find(shape);
  const bool tuned_cutlass = tuned != nullptr && tuned->library == GroupedLibrary::cutlass;
  const bool tuned_cublaslt = tuned != nullptr && tuned->library == GroupedLibrary::cublaslt;
  const std::string without_cutlass = cutlass_missing(runtime);
  if (tuned_cutlass && !without_cutlass.empty()) {
    throw Error(
        "run.tuned_products has CUTLASS for {}; {}, or tune again with `tessera bench products`",
        describe(shape), without_cutlass);
  }
  if (tuned == nullptr && table.in_use) {
    Logger().info("run.tuned_products does not have {}", describe(shape));
  }
  if (!tuned_cublaslt && without_cutlass.empty()) return GroupedLibrary::cutlass;
  const std::string without_cublaslt =
      cublaslt_grouped_missing(runtime, shape, operands, workspace);
  if (without_cublaslt.empty()) return GroupedLibrary::cublaslt;
  if (tuned_cublaslt) {
    throw Error("run.tuned_products has cuBLASLt for {}; {}", describe(shape), without_cublaslt);
  }
  no_library(operation, without_cutlass, without_cublaslt);
}

/// A product's operands, full of random numbers, and what measures it.
class MeasuredGroups {
 public:
  MeasuredGroups(Runtime& runtime, const GroupedShape& shape)
      : runtime_(runtime),
        shape_(shape),
        rows_(random_operand(accelerator(), bytes(shape.rows * first_width(), shape.input), 1)),
        other_(random_operand(accelerator(), bytes(other_elements(), shape.input), 2)),
        result_(accelerator().allocate(bytes(result_elements(), shape.output))),
        sum_(accelerator().allocate(bytes(result_elements(), DType::f32))),
        offsets_(balanced_offsets()),
        workspace_(accelerator().allocate(GroupedAreas(shape.groups).bytes())),
        stream_(accelerator().make_stream()),
        begin_(accelerator().make_event()),
        end_(accelerator().make_event()) {}

  std::string cublaslt_missing() const {
    return cublaslt_grouped_missing(runtime_, shape_, operands(), workspace());
  }

  /// Returns the seconds of one of `runs` runs that follow each other.
  double seconds(GroupedLibrary library, int64_t runs) const {
    const Execution execution{runtime_, {}, {}, {}, stream_.get()};
    stream_->record(*begin_);
    for (int64_t i = 0; i < runs; ++i) {
      multiply_by(library, execution, "bench products", shape_, operands(), workspace());
    }
    stream_->record(*end_);
    end_->synchronize();
    return end_->seconds_since(*begin_) / static_cast<double>(runs);
  }

 private:
  Accelerator& accelerator() const { return *runtime_.accelerator(); }
  static int64_t bytes(int64_t elements, DType dtype) { return elements * dtype_size(dtype); }
  bool makes_weights() const { return shape_.kind == GroupedKind::weight_gradient; }
  int64_t first_width() const {
    return shape_.kind == GroupedKind::forward ? shape_.in : shape_.out;
  }
  int64_t weights() const { return shape_.groups * shape_.out * shape_.in; }
  int64_t other_elements() const { return makes_weights() ? shape_.rows * shape_.in : weights(); }
  int64_t result_elements() const {
    if (makes_weights()) return weights();
    return shape_.rows * (shape_.kind == GroupedKind::forward ? shape_.out : shape_.in);
  }
  std::unique_ptr<DeviceMemory> balanced_offsets() const {
    std::vector<int32_t> offsets;
    for (int64_t group = 0; group <= shape_.groups; ++group) {
      offsets.push_back(static_cast<int32_t>(shape_.rows * group / shape_.groups));
    }
    const auto as_bytes = std::as_bytes(std::span(offsets));
    auto memory = accelerator().allocate(static_cast<int64_t>(as_bytes.size()));
    accelerator().upload(as_bytes, memory->address());
    return memory;
  }
  GroupedOperands operands() const {
    return {.rows = rows_->address(),
            .other = other_->address(),
            .offsets = static_cast<const int32_t*>(offsets_->address()),
            .result = result_->address(),
            .sum = static_cast<const float*>(sum_->address())};
  }
  std::byte* workspace() const { return static_cast<std::byte*>(workspace_->address()); }

  Runtime& runtime_;
  GroupedShape shape_;
  std::unique_ptr<DeviceMemory> rows_, other_, result_, sum_, offsets_, workspace_;
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_, end_;
};

}  // namespace

void require_cuda_grouped(Runtime& runtime, std::string_view operation) {
  const std::string without_cutlass = cutlass_missing(runtime);
  if (without_cutlass.empty()) return;
  const std::string without_cublaslt = cublaslt_grouped_missing(runtime);
  if (!without_cublaslt.empty()) no_library(operation, without_cutlass, without_cublaslt);
}

void cuda_grouped(const Execution& execution, std::string_view operation, const GroupedShape& shape,
                  const GroupedOperands& operands, std::byte* workspace) {
  auto& choices = execution.runtime.cache<GroupedChoices>().of_shape;
  auto found = choices.find(shape);
  if (found == choices.end()) {
    found = choices.emplace(shape, choose(execution.runtime, operation, shape, operands, workspace))
                .first;
  }
  multiply_by(found->second, execution, operation, shape, operands, workspace);
}

std::vector<GroupedShape> cuda_grouped_shapes(Runtime& runtime) {
  std::vector<GroupedShape> shapes;
  for (const auto& [shape, library] : runtime.cache<GroupedChoices>().of_shape) {
    shapes.push_back(shape);
  }
  return shapes;
}

TunedGrouped tune_cuda_grouped(Runtime& runtime, const GroupedShape& shape,
                               const TuningBudget& budget) {
  const MeasuredGroups groups(runtime, shape);
  std::vector<GroupedLibrary> libraries;
  if (cutlass_missing(runtime).empty()) libraries.push_back(GroupedLibrary::cutlass);
  if (groups.cublaslt_missing().empty()) libraries.push_back(GroupedLibrary::cublaslt);
  if (libraries.empty()) {
    throw Error("no library has {}: {}. {}", describe(shape), cutlass_missing(runtime),
                groups.cublaslt_missing());
  }
  std::map<GroupedLibrary, std::vector<double>> seconds;
  std::map<GroupedLibrary, int64_t> runs;
  for (const GroupedLibrary library : libraries) {
    groups.seconds(library, 2);  // loads its kernel
    runs[library] = runs_of_sample(groups.seconds(library, 2), budget);
  }
  for (int round = 0; round < budget.rounds; ++round) {
    for (const GroupedLibrary library : libraries) {
      seconds[library].push_back(groups.seconds(library, runs[library]));
    }
  }
  return faster_library(shape, seconds[GroupedLibrary::cutlass], seconds[GroupedLibrary::cublaslt]);
}

}  // namespace tessera
