#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ops/gemm/cublaslt_products.h"
#include "ops/moe/grouped_layout.h"

namespace tessera {

/// cuBLASLt's description of a grouped product (one matrix product per group). The sizes and
/// addresses of the matrices are in device memory. cuBLASLt has grouped products from version 13.3
/// on; those for Hopper are right from 13.4 on. A description can be made without a device.
class CublasLtGroupedProduct {
 public:
  /// Returns whether the library has grouped products that are right on Hopper: 13.4 or later.
  static bool is_right_with(const CublasLt& library);

  /// Describes a shape's product, with `table` in cuBLASLt's form (GroupedAreas::table()). Both
  /// constructors throw Error, which names the shape, if the library refuses the shape.
  CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape,
                         const GroupTable& table);
  /// Describes a shape's product without device memory. The library can search for an algorithm for
  /// it, but cannot run it.
  CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  /// Returns the library's A, which is our B, because the library stores matrices by columns. The
  /// library's B is our A.
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t c() const { return c_.get(); }
  cublasLtMatrixLayout_t d() const { return d_.get(); }

 private:
  CublasLtOwned<cublasLtMatmulDesc_t> operation_;
  CublasLtOwned<cublasLtMatrixLayout_t> a_;
  CublasLtOwned<cublasLtMatrixLayout_t> b_;
  CublasLtOwned<cublasLtMatrixLayout_t> c_;
  CublasLtOwned<cublasLtMatrixLayout_t> d_;
};

/// The descriptions and the algorithms of the grouped products of a runtime. It is in the runtime's
/// cache and is thread-safe. The references that it returns stay valid and unchanged.
class CublasLtGroupedProducts {
 public:
  /// Returns the description of a shape's product. The first call for a shape and a workspace makes
  /// it, because a description contains the addresses of the table's lists in the workspace.
  const CublasLtGroupedProduct& product(const CublasLt& library, const GroupedShape& shape,
                                        const GroupTable& table);
  /// Returns the algorithm that the library chooses for a shape, or none if it offers none. The
  /// library is asked once per shape.
  const std::optional<cublasLtMatmulAlgo_t>& algorithm(const CublasLtProducts& products,
                                                       const CublasLtGroupedProduct& product,
                                                       const GroupedShape& shape);

 private:
  /// A shape, and GroupTable::sizes. All lists of a table are in one workspace, so the address of
  /// the sizes stands for the addresses of all lists.
  using Key = std::pair<GroupedShape, const int32_t*>;

  std::mutex mutex_;
  std::map<Key, CublasLtGroupedProduct> products_;
  std::map<GroupedShape, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

/// Returns the preferences for a search for an algorithm. They assume equally many rows per group.
CublasLtPreference grouped_preference(const CublasLt& library, const GroupedShape& shape,
                                      int64_t workspace_bytes);

/// Returns the reason why cuBLASLt cannot compute a shape's products here: it is too old, or offers
/// no algorithm. Returns an empty string if it can. Needs no operands, so it can be called before
/// there is memory for them. Throws Error if the library fails.
std::string why_cublaslt_is_missing(Runtime& runtime, const GroupedShape& shape);

/// Puts grouped products in bf16 into a stream of the device cuda (see device_grouped()). The
/// library must not be too old. Throws Error if it offers no algorithm or fails.
void multiply_by_cublaslt(const Execution& execution, std::string_view operation,
                          const GroupedShape& shape, const GroupedOperands& operands,
                          std::byte* workspace);

}  // namespace tessera
