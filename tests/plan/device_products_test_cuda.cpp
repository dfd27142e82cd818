// The products of every shipped configuration, as the real cuBLASLt describes them. It does so
// without a device, which only the choice of algorithms needs.

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/resolve.h"
#include "ops/gemm/column_major.h"
#include "ops/gemm/cublaslt.h"
#include "ops/gemm/tuned_products.h"
#include "ops/moe/cublaslt_grouped.h"
#include "plan/programs.h"
#include "support/error_of.h"

namespace tessera {
namespace {

/// The products of a linear map of `tokens` rows with a weight [out, in], and their gradients'.
void add_linear(std::vector<GemmShape>& shapes, int64_t tokens, int64_t out, int64_t in,
                DType dtype) {
  const GemmShape forward{
      .m = tokens, .n = out, .k = in, .input = dtype, .output = dtype, .transpose_b = true};
  GemmShape wide = forward;
  wide.output = DType::f32;
  const GemmShape input_gradient{.m = tokens, .n = in, .k = out, .input = dtype, .output = dtype};
  GemmShape second = input_gradient;  // one of several that are summed in f32
  second.output = DType::f32;
  second.accumulate = true;
  const GemmShape weight_gradient{.m = out,
                                  .n = in,
                                  .k = tokens,
                                  .input = dtype,
                                  .output = DType::f32,
                                  .transpose_a = true,
                                  .accumulate = true};
  GemmShape of_logits = weight_gradient;  // the gradient in bf16 lies in rows of logits in f32
  of_logits.lda = 2 * out;
  shapes.insert(shapes.end(), {forward, wide, input_gradient, second, weight_gradient, of_logits});
}

/// Such products of all weights that are matrices.
std::vector<GemmShape> shapes_of(const RunConfig& config, DType dtype) {
  std::vector<GemmShape> shapes;
  std::set<std::pair<int64_t, int64_t>> weights;
  const StepPrograms programs = step_programs(config);
  for (const ParameterSpec& weight : programs.model.parameters.specs()) {
    if (weight.shape.rank() == 2) weights.emplace(weight.shape[0], weight.shape[1]);
  }
  for (const auto& [out, in] : weights) {
    add_linear(shapes, config.train.micro_batch * config.data.context, out, in, dtype);
  }
  return shapes;
}

template <typename T>
T layout_attribute(const CublasLt& library, cublasLtMatrixLayout_t layout,
                   cublasLtMatrixLayoutAttribute_t attribute) {
  T value{};
  size_t written = 0;
  library.check(
      library.function<decltype(cublasLtMatrixLayoutGetAttribute)>(
          "cublasLtMatrixLayoutGetAttribute")(layout, attribute, &value, sizeof(value), &written),
      "a layout's attribute");
  EXPECT_EQ(written, sizeof(value));
  return value;
}

int32_t operation_attribute(const CublasLt& library, cublasLtMatmulDesc_t operation,
                            cublasLtMatmulDescAttributes_t attribute) {
  int32_t value = -1;
  size_t written = 0;
  library.check(
      library.function<decltype(cublasLtMatmulDescGetAttribute)>("cublasLtMatmulDescGetAttribute")(
          operation, attribute, &value, sizeof(value), &written),
      "an operation's attribute");
  return value;
}

void expect_layout(const CublasLt& library, cublasLtMatrixLayout_t layout,
                   const ColumnMajorMatrix& matrix, cudaDataType_t type) {
  const auto number = [&](auto attribute) {
    return static_cast<int64_t>(layout_attribute<uint64_t>(library, layout, attribute));
  };
  EXPECT_EQ(number(CUBLASLT_MATRIX_LAYOUT_ROWS), matrix.rows);
  EXPECT_EQ(number(CUBLASLT_MATRIX_LAYOUT_COLS), matrix.columns);
  EXPECT_EQ(number(CUBLASLT_MATRIX_LAYOUT_LD), matrix.leading);
  EXPECT_EQ(layout_attribute<uint32_t>(library, layout, CUBLASLT_MATRIX_LAYOUT_TYPE),
            static_cast<uint32_t>(type));
  EXPECT_EQ(layout_attribute<int32_t>(library, layout, CUBLASLT_MATRIX_LAYOUT_ORDER),
            CUBLASLT_ORDER_COL);
}

void expect_described(const CublasLt& library, const GemmShape& shape, bool tf32) {
  const CublasLtProduct product(library, shape, tf32);
  const ColumnMajorProduct is = column_major(shape);
  expect_layout(library, product.a(), is.a, cublaslt_type(shape.input));
  expect_layout(library, product.b(), is.b, cublaslt_type(shape.input));
  expect_layout(library, product.d(), is.d, cublaslt_type(shape.output));
  const auto attribute = [&](auto which) {
    return operation_attribute(library, product.operation(), which);
  };
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_DESC_TRANSA), is.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_DESC_TRANSB), is.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
            tf32 && shape.input == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_DESC_SCALE_TYPE), CUDA_R_32F);
}

/// The library, or why it is not here.
struct Loaded {
  std::unique_ptr<CublasLt> library;
  std::string missing;

  Loaded() {
    try {
      library = std::make_unique<CublasLt>();
    } catch (const Error& error) {
      missing = error.what();
    }
  }
};

TEST(CublasLt, DescribesTheProductsOfEveryShippedConfiguration) {
  const Loaded loaded;
  if (!loaded.library) GTEST_SKIP() << loaded.missing;
  size_t shapes = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    RunConfig config = load_config(entry.path());
    if (config.model.vocabulary_size == 0) config.model.vocabulary_size = 8192;
    config = resolve(config);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const GemmShape& shape : shapes_of(config, dtype)) {
        SCOPED_TRACE(entry.path().filename().string() + ": " + describe(shape));
        expect_described(*loaded.library, shape, shapes++ % 2 == 0);
      }
    }
  }
  EXPECT_GT(shapes, 300U);
}

TEST(CublasLt, ChoosesAmongAlgorithmsThatSumInFloats) {
  const Loaded loaded;
  if (!loaded.library) GTEST_SKIP() << loaded.missing;
  const CublasLtPreference preference(*loaded.library, int64_t{1} << 25, 16);
  const auto attribute = [&](auto which, auto value) {
    size_t written = 0;
    loaded.library->check(loaded.library->function<decltype(cublasLtMatmulPreferenceGetAttribute)>(
                              "cublasLtMatmulPreferenceGetAttribute")(
                              preference.get(), which, &value, sizeof(value), &written),
                          "a preference");
    return value;
  };
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{}), uint64_t{1} << 25);
  const auto schemes = attribute(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{});
  EXPECT_EQ(schemes & uint32_t{CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}, 0U);
  EXPECT_EQ(schemes & uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE}, 0U);
  EXPECT_EQ(attribute(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{}), 16U);
}

/// The sizes of the groups of a layout, as the library remembers them.
struct GroupedSizesOf {
  const void* rows = nullptr;
  const void* columns = nullptr;
  const void* strides = nullptr;

  GroupedSizesOf(const CublasLt& library, cublasLtMatrixLayout_t layout) {
    const auto pointer = [&](int attribute) {
      return layout_attribute<const void*>(library, layout,
                                           static_cast<cublasLtMatrixLayoutAttribute_t>(attribute));
    };
    rows = pointer(9);
    columns = pointer(10);
    strides = pointer(11);
  }
};

TEST(CublasLt, DescribesProductsOfGroups) {
  const Loaded loaded;
  if (!loaded.library) GTEST_SKIP() << loaded.missing;
  const CublasLt& library = *loaded.library;
  if (!CublasLtGroupedProduct::is_right_with(library)) GTEST_SKIP() << library.version_text();
  // The lists lie in a device's memory, which describing does not read.
  auto* const memory = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  for (const GroupedKind kind :
       {GroupedKind::forward, GroupedKind::input_gradient, GroupedKind::weight_gradient}) {
    const bool forward = kind == GroupedKind::forward;
    const bool rows_are_k = kind == GroupedKind::weight_gradient;
    const GroupedShape shape{.kind = kind,
                             .groups = 64,
                             .rows = 32768,
                             .in = 2048,
                             .out = 1024,
                             .input = DType::bf16,
                             .output = rows_are_k ? DType::f32 : DType::bf16};
    SCOPED_TRACE(describe(shape));
    const GroupTable table =
        GroupedAreas(shape.groups).table(GroupedLibrary::cublaslt, shape, {}, memory);
    const int32_t *const m = table.sizes, *const n = m + 64, *const k = n + 64;
    const CublasLtGroupedProduct product(library, shape, table);
    const auto transposes = [&](auto which) {
      return operation_attribute(library, product.operation(), which) == CUBLAS_OP_T;
    };
    // By columns a product is its transpose: B' = op(A) has n rows and k columns.
    EXPECT_EQ(transposes(CUBLASLT_MATMUL_DESC_TRANSA), forward);
    EXPECT_EQ(transposes(CUBLASLT_MATMUL_DESC_TRANSB), rows_are_k);
    EXPECT_EQ(operation_attribute(library, product.operation(), CUBLASLT_MATMUL_DESC_POINTER_MODE),
              CUBLASLT_POINTER_MODE_DEVICE);
    const GroupedSizesOf a(library, product.a()), b(library, product.b()), d(library, product.d());
    EXPECT_EQ(a.rows, forward ? k : n);
    EXPECT_EQ(a.columns, forward ? n : k);
    EXPECT_EQ(b.rows, rows_are_k ? m : k);
    EXPECT_EQ(b.columns, rows_are_k ? k : m);
    EXPECT_EQ(d.rows, n);
    EXPECT_EQ(d.columns, m);
    EXPECT_EQ(a.strides, table.strides[1]);
    EXPECT_EQ(b.strides, table.strides[0]);
    EXPECT_EQ(d.strides, table.strides[3]);
    EXPECT_EQ(layout_attribute<uint32_t>(library, product.d(), CUBLASLT_MATRIX_LAYOUT_TYPE),
              static_cast<uint32_t>(rows_are_k ? CUDA_R_32F : CUDA_R_16BF));
    grouped_preference(library, shape, int64_t{1} << 25);
    // It is the same before there is memory.
    const CublasLtGroupedProduct early(library, shape);
    for (const auto which : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB,
                             CUBLASLT_MATMUL_DESC_POINTER_MODE}) {
      EXPECT_EQ(operation_attribute(library, early.operation(), which),
                operation_attribute(library, product.operation(), which));
    }
    EXPECT_EQ(layout_attribute<uint32_t>(library, early.d(), CUBLASLT_MATRIX_LAYOUT_TYPE),
              layout_attribute<uint32_t>(library, product.d(), CUBLASLT_MATRIX_LAYOUT_TYPE));
  }
}

TEST(CublasLt, ProductsOfGroupsAreDescribedOnceForEachPlaceOfTheirTable) {
  const Loaded loaded;
  if (!loaded.library) GTEST_SKIP() << loaded.missing;
  const CublasLt& library = *loaded.library;
  if (!CublasLtGroupedProduct::is_right_with(library)) GTEST_SKIP() << library.version_text();
  GroupedShape shape{.groups = 8,
                     .rows = 4096,
                     .in = 2048,
                     .out = 1024,
                     .input = DType::bf16,
                     .output = DType::bf16};
  CublasLtGroupedProducts products;
  const auto product_at = [&](uintptr_t place) -> const CublasLtGroupedProduct& {
    auto* const workspace = reinterpret_cast<std::byte*>(place);
    const GroupTable table =
        GroupedAreas(shape.groups).table(GroupedLibrary::cublaslt, shape, {}, workspace);
    const CublasLtGroupedProduct& product = products.product(library, shape, table);
    EXPECT_EQ(GroupedSizesOf(library, product.d()).columns, table.sizes);
    EXPECT_EQ(GroupedSizesOf(library, product.d()).strides, table.strides[3]);
    return product;
  };
  constexpr uintptr_t kHere = uintptr_t{1} << 40, kThere = uintptr_t{1} << 41;
  const CublasLtGroupedProduct *const here = &product_at(kHere), *const there = &product_at(kThere);
  EXPECT_NE(here, there);
  EXPECT_EQ(&product_at(kHere), here);
  EXPECT_EQ(&product_at(kThere), there);
  shape.kind = GroupedKind::input_gradient;
  EXPECT_NE(&product_at(kHere), here);
  EXPECT_EQ(operation_attribute(library, here->operation(), CUBLASLT_MATMUL_DESC_TRANSA),
            CUBLAS_OP_T);
}

TEST(CublasLt, SaysItsOwnWordsInErrors) {
  const Loaded loaded;
  if (!loaded.library) GTEST_SKIP() << loaded.missing;
  EXPECT_EQ(loaded.library->version_text().rfind("cuBLASLt ", 0), 0U);
  const std::string message = error_of(
      [&] { loaded.library->check(CUBLAS_STATUS_NOT_SUPPORTED, "a product [1, 2] x [2, 3]"); });
  EXPECT_EQ(message.rfind("a product [1, 2] x [2, 3]: cuBLASLt ", 0), 0U) << message;
  EXPECT_NE(message.find("not supported"), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera
