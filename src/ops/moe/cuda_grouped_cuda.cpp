#include "ops/moe/cublaslt_grouped.h"
#include "ops/moe/cuda_grouped.h"

namespace tessera {

std::vector<GroupedCandidate> grouped_libraries(Runtime& runtime, const GroupedShape& shape) {
  return {{GroupedLibrary::cutlass, [&runtime] { return why_cutlass_is_missing(runtime); }},
          {GroupedLibrary::cublaslt,
           [&runtime, shape] { return why_cublaslt_is_missing(runtime, shape); }}};
}

void multiply_groups(GroupedLibrary library, const Execution& execution, std::string_view operation,
                     const GroupedShape& shape, const GroupedOperands& operands,
                     std::byte* workspace) {
  const auto multiply =
      library == GroupedLibrary::cutlass ? multiply_by_cutlass : multiply_by_cublaslt;
  multiply(execution, operation, shape, operands, workspace);
}

void require_cuda_grouped(Runtime& runtime, std::string_view operation, const GroupedShape& shape) {
  // Throws if both libraries are missing. The choice is not kept: the first run asks the table.
  choose_grouped(operation, shape, {}, grouped_libraries(runtime, shape));
}

void cuda_grouped(const Execution& execution, std::string_view operation, const GroupedShape& shape,
                  const GroupedOperands& operands, std::byte* workspace) {
  Runtime& runtime = execution.runtime;
  auto& choices = runtime.cache<GroupedChoices>();
  // The choice of a shape's first run holds for all later ones.
  const GroupedLibrary* const earlier_choice = choices.find(shape);
  const GroupedLibrary library =
      earlier_choice != nullptr
          ? *earlier_choice
          : choices.keep(shape, choose_grouped(operation, shape, runtime.cache<TunedGroups>(),
                                               grouped_libraries(runtime, shape)));
  multiply_groups(library, execution, operation, shape, operands, workspace);
}

}  // namespace tessera
