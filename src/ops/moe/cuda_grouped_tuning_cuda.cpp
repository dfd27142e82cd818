#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/gemm/tuned_products.h"
#include "ops/moe/cuda_grouped.h"
#include "ops/moe/grouped_layout.h"

namespace tessera {
namespace {

// Measures each library that has a shape's products. Two runs load its kernel, and two more show
// how many runs make a sample that is long enough to time. Then the libraries take turns, one
// sample a round, so that a change of the device's clock affects both. The lower median decides.

/// A product's operands, of which the two factors are random numbers, and the events that time it.
class MeasuredGroups {
 public:
  MeasuredGroups(Runtime& runtime, const GroupedShape& shape)
      : runtime_(runtime),
        shape_(shape),
        rows_(random_operand(accelerator(), bytes(shape.rows * first_width(), shape.input), 1)),
        second_(random_operand(accelerator(), bytes(second_elements(), shape.input), 2)),
        result_(accelerator().allocate(bytes(result_elements(), shape.output))),
        sum_(accelerator().allocate(bytes(result_elements(), DType::f32))),
        offsets_(balanced_offsets()),
        workspace_(accelerator().allocate(GroupedAreas(shape.groups).bytes())),
        stream_(accelerator().make_stream()),
        begin_(accelerator().make_event()),
        end_(accelerator().make_event()) {}

  /// Returns the mean seconds of `runs` consecutive runs.
  double seconds(GroupedLibrary library, int64_t runs) const {
    const Execution execution{runtime_, {}, {}, {}, stream_.get()};
    stream_->record(*begin_);
    for (int64_t i = 0; i < runs; ++i) {
      multiply_groups(library, execution, "bench products", shape_, operands(),
                      static_cast<std::byte*>(workspace_->address()));
    }
    stream_->record(*end_);
    end_->synchronize();
    return end_->seconds_since(*begin_) / static_cast<double>(runs);
  }

 private:
  Accelerator& accelerator() const { return *runtime_.accelerator(); }
  static int64_t bytes(int64_t elements, DType dtype) { return elements * dtype_size(dtype); }
  bool is_weight_gradient() const { return shape_.kind == GroupedKind::weight_gradient; }
  /// Returns the number of columns of the first factor.
  int64_t first_width() const {
    return shape_.kind == GroupedKind::forward ? shape_.in : shape_.out;
  }
  int64_t weight_elements() const { return shape_.groups * shape_.out * shape_.in; }
  int64_t second_elements() const {
    return is_weight_gradient() ? shape_.rows * shape_.in : weight_elements();
  }
  int64_t result_elements() const {
    if (is_weight_gradient()) return weight_elements();
    return shape_.rows * (shape_.kind == GroupedKind::forward ? shape_.out : shape_.in);
  }
  /// Returns the offsets of groups whose numbers of rows differ by one at most.
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
            .second = second_->address(),
            .offsets = static_cast<const int32_t*>(offsets_->address()),
            .result = result_->address(),
            .sum = static_cast<const float*>(sum_->address())};
  }

  Runtime& runtime_;
  GroupedShape shape_;
  std::unique_ptr<DeviceMemory> rows_, second_, result_, sum_, offsets_, workspace_;
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_, end_;
};

/// Returns the libraries that can compute a product. If none can, throws Error with all reasons.
std::vector<GroupedLibrary> usable_libraries(Runtime& runtime, const GroupedShape& shape) {
  std::vector<GroupedLibrary> usable;
  std::vector<std::string> reasons;
  for (const GroupedCandidate& candidate : grouped_libraries(runtime, shape)) {
    std::string reason = candidate.why_missing();
    if (reason.empty()) {
      usable.push_back(candidate.library);
    } else {
      reasons.push_back(std::move(reason));
    }
  }
  if (usable.empty()) throw Error("no library has {}. {}", describe(shape), join(reasons, ". "));
  return usable;
}

}  // namespace

TunedGrouped tune_cuda_grouped(Runtime& runtime, const GroupedShape& shape,
                               const TuningBudget& budget) {
  const MeasuredGroups measured(runtime, shape);
  const std::vector<GroupedLibrary> libraries = usable_libraries(runtime, shape);
  std::map<GroupedLibrary, std::vector<double>> seconds;
  std::map<GroupedLibrary, int64_t> runs;
  for (const GroupedLibrary library : libraries) {
    measured.seconds(library, 2);  // loads its kernel
    runs[library] = runs_of_sample(measured.seconds(library, 2), budget);
  }
  for (int round = 0; round < budget.rounds; ++round) {
    for (const GroupedLibrary library : libraries) {
      seconds[library].push_back(measured.seconds(library, runs[library]));
    }
  }
  return faster_library(shape, seconds[GroupedLibrary::cutlass], seconds[GroupedLibrary::cublaslt]);
}

}  // namespace tessera
