#include "base/error.h"
#include "device/vendor.h"
#include "ops/moe/cublaslt_grouped.h"

namespace tessera {
namespace {

// cuBLASLt stores matrices by columns, so it takes a matrix of ours for the transpose. It computes
// Dᵀ = Bᵀ Aᵀ for our D = A B: its A is our B, its B is our A, and its rows are our columns.

constexpr size_t kFirstVersion = 130400;  // the first whose grouped products are right on Hopper

// Declarations that headers before 13.3 lack, so that builds with old headers can use a new
// library. The numbers are those of CUBLASLT_GROUPED_MATRIX_LAYOUT_LD_ARRAY_INTEGER_WIDTH,
// CUBLASLT_INTEGER_WIDTH_64, and CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM,
// _DESC_D_AVERAGE_ROWS and _DESC_D_AVERAGE_COLS.
using CreateGrouped = cublasStatus_t(cublasLtMatrixLayout_t* layout, cudaDataType type, int groups,
                                     const void* rows, const void* columns, const void* strides);
constexpr const char* kCreateGrouped = "cublasLtGroupedMatrixLayoutCreate";
constexpr auto kStrideWidth = static_cast<cublasLtMatrixLayoutAttribute_t>(13);
constexpr int32_t kStridesOf64Bits = 1;
constexpr auto kAverageTerms = static_cast<cublasLtMatmulPreferenceAttributes_t>(13);
constexpr auto kAverageRows = static_cast<cublasLtMatmulPreferenceAttributes_t>(14);
constexpr auto kAverageColumns = static_cast<cublasLtMatmulPreferenceAttributes_t>(15);

/// Returns an address that is aligned like a workspace, for descriptions that are only searched
/// with. No memory is there, and nothing reads it.
std::byte* no_workspace() {
  return reinterpret_cast<std::byte*>(uintptr_t{1} << 40);  // NOLINT(performance-no-int-to-ptr)
}

/// Returns the library's layout of one operand, a matrix for each group. `rows` and `columns` are
/// indices of sizes in the table (kM, kN, kK), and `operand` is that of an operand (kA to kD).
CublasLtOwned<cublasLtMatrixLayout_t> library_layout(const CublasLt& library,
                                                     const GroupTable& table, DType dtype, int rows,
                                                     int columns, int operand,
                                                     const std::string& what) {
  const auto sizes = [&](int index) { return table.sizes + index * table.size_step; };
  auto layout =
      cublaslt_create<cublasLtMatrixLayout_t, CreateGrouped, decltype(cublasLtMatrixLayoutDestroy)>(
          library, kCreateGrouped, "cublasLtMatrixLayoutDestroy", what, cublaslt_type(dtype),
          static_cast<int>(table.groups), static_cast<const void*>(sizes(rows)),
          static_cast<const void*>(sizes(columns)),
          static_cast<const void*>(table.strides[operand]));
  library.check(library.function<decltype(cublasLtMatrixLayoutSetAttribute)>(
                    "cublasLtMatrixLayoutSetAttribute")(
                    layout.get(), kStrideWidth, &kStridesOf64Bits, sizeof(kStridesOf64Bits)),
                what);
  return layout;
}

// The indices of the sizes and of the operands in a GroupTable.
constexpr int kM = 0, kN = 1, kK = 2;
constexpr int kA = 0, kB = 1, kC = 2, kD = 3;

std::optional<cublasLtMatmulAlgo_t> find_algorithm(const CublasLtProducts& products,
                                                   const CublasLtGroupedProduct& product,
                                                   const GroupedShape& shape) {
  const CublasLt& library = products.library();
  const CublasLtPreference preference =
      grouped_preference(library, shape, GroupedAreas(shape.groups).library_bytes());
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status =
      library.function<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic")(
          products.handle(), product.operation(), product.a(), product.b(), product.c(),
          product.d(), preference.get(), 1, &result, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  library.check(status, describe(shape));
  if (count == 0 || result.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return result.algo;
}

}  // namespace

bool CublasLtGroupedProduct::is_right_with(const CublasLt& library) {
  return library.version_number() >= kFirstVersion;
}

CublasLtGroupedProduct::CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape,
                                               const GroupTable& table)
    : operation_(cublaslt_operation(library, CUBLAS_COMPUTE_32F, shape.kind == GroupedKind::forward,
                                    shape.kind == GroupedKind::weight_gradient, describe(shape))),
      a_(shape.kind == GroupedKind::forward
             ? library_layout(library, table, shape.input, kK, kN, kB, describe(shape))
             : library_layout(library, table, shape.input, kN, kK, kB, describe(shape))),
      b_(shape.kind == GroupedKind::weight_gradient
             ? library_layout(library, table, shape.input, kM, kK, kA, describe(shape))
             : library_layout(library, table, shape.input, kK, kM, kA, describe(shape))),
      c_(library_layout(library, table, shape.adds ? DType::f32 : shape.output, kN, kM,
                        shape.adds ? kC : kD, describe(shape))),
      d_(library_layout(library, table, shape.output, kN, kM, kD, describe(shape))) {
  // The kernel reads alpha and beta, which all groups share, from device memory. Where nothing but
  // D itself is added, C is D: beta is 1 for a weight gradient and 0 otherwise.
  const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
  library.check(
      library.function<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute")(
          operation_.get(), CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof(mode)),
      describe(shape));
}

CublasLtGroupedProduct::CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape)
    : CublasLtGroupedProduct(
          library, shape,
          GroupedAreas(shape.groups).table(GroupedLibrary::cublaslt, shape, {}, no_workspace())) {}

const CublasLtGroupedProduct& CublasLtGroupedProducts::product(const CublasLt& library,
                                                               const GroupedShape& shape,
                                                               const GroupTable& table) {
  const std::scoped_lock lock(mutex_);
  return products_.try_emplace(Key(shape, table.sizes), library, shape, table).first->second;
}

const std::optional<cublasLtMatmulAlgo_t>& CublasLtGroupedProducts::algorithm(
    const CublasLtProducts& products, const CublasLtGroupedProduct& product,
    const GroupedShape& shape) {
  const std::scoped_lock lock(mutex_);
  const auto found = algorithms_.find(shape);
  if (found != algorithms_.end()) return found->second;
  return algorithms_.emplace(shape, find_algorithm(products, product, shape)).first->second;
}

CublasLtPreference grouped_preference(const CublasLt& library, const GroupedShape& shape,
                                      int64_t workspace_bytes) {
  const bool forward = shape.kind == GroupedKind::forward;
  const bool rows_are_k = shape.kind == GroupedKind::weight_gradient;
  const int64_t rows = (shape.rows + shape.groups - 1) / shape.groups;
  CublasLtPreference preference(library, workspace_bytes, kProductAlignment);
  preference.set(kAverageRows, forward ? shape.out : shape.in);
  preference.set(kAverageColumns, rows_are_k ? shape.out : rows);
  preference.set(kAverageTerms, rows_are_k ? rows : forward ? shape.in : shape.out);
  return preference;
}

std::string why_cublaslt_is_missing(Runtime& runtime, const GroupedShape& shape) {
  const auto& products = runtime.cache<CublasLtProducts>();
  const CublasLt& library = products.library();
  if (!CublasLtGroupedProduct::is_right_with(library)) {
    return fmt::format("{} has no products of groups that are right on Hopper: 13.4 has",
                       library.version_text());
  }
  auto& grouped = runtime.cache<CublasLtGroupedProducts>();
  if (grouped.algorithm(products, CublasLtGroupedProduct(library, shape), shape)) return "";
  return fmt::format("{} offers no algorithm for {}", library.version_text(), describe(shape));
}

void multiply_by_cublaslt(const Execution& execution, std::string_view operation,
                          const GroupedShape& shape, const GroupedOperands& operands,
                          std::byte* workspace) {
  Runtime& runtime = execution.runtime;
  const GroupedAreas areas(shape.groups);
  const GroupTable table = areas.table(GroupedLibrary::cublaslt, shape, operands, workspace);
  const auto& products = runtime.cache<CublasLtProducts>();
  const CublasLt& library = products.library();
  auto& grouped = runtime.cache<CublasLtGroupedProducts>();
  const CublasLtGroupedProduct& product = grouped.product(library, shape, table);
  const auto& chosen = grouped.algorithm(products, product, shape);
  if (!chosen) {
    throw Error("{}: {}", operation, why_cublaslt_is_missing(runtime, shape));
  }
  write_group_table_device<Cuda>(table, *execution.stream);
  const void* const* const c = table.addresses[shape.adds ? kC : kD];
  const cublasStatus_t status = library.function<decltype(cublasLtMatmul)>("cublasLtMatmul")(
      products.handle(), product.operation(), table.factors, table.addresses[kB], product.a(),
      table.addresses[kA], product.b(), table.factors + 1, c, product.c(), table.addresses[kD],
      product.d(), &*chosen, areas.library_memory(workspace),
      static_cast<size_t>(areas.library_bytes()),
      static_cast<cudaStream_t>(execution.stream->handle()));
  if (status != CUBLAS_STATUS_SUCCESS) library.check(status, describe(shape));
}

}  // namespace tessera
