#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ops/gemm/cublaslt_products.h"
#include "ops/moe/grouped_layout.h"

namespace tessera {

/// cuBLASLt's descriptions of products of groups, whose sizes and addresses lie in the device's
/// memory. The library has them from 13.3 on, for Hopper from 13.4. Describing needs no device.
class CublasLtGroupedProduct {
 public:
  /// Whether the library can describe such products.
  static bool known_to(const CublasLt& library);

  /// `table` has cuBLASLt's form. Throws Error, which names the shape, if the library does not take
  /// it.
  CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape,
                         const GroupTable& table);
  /// A description that has no memory of a device yet: the library can be asked about it, but it
  /// cannot run.
  CublasLtGroupedProduct(const CublasLt& library, const GroupedShape& shape);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  /// The library's A is our B, and its B our A: it has matrices by columns.
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

/// The descriptions and the algorithms of the products of groups that a runtime has multiplied. It
/// lies in the runtime's cache. Several threads may ask; what they get stays as it is.
class CublasLtGroupedProducts {
 public:
  /// Returns the description of a shape's products, which it makes the first time for each place of
  /// a table's lists: descriptions have their addresses. So each workspace of a plan has its own.
  const CublasLtGroupedProduct& product(const CublasLt& library, const GroupedShape& shape,
                                        const GroupTable& table);
  /// Returns the library's choice for a shape, or none where it has none. It asks the first time.
  const std::optional<cublasLtMatmulAlgo_t>& algorithm(const CublasLtProducts& products,
                                                       const CublasLtGroupedProduct& product,
                                                       const GroupedShape& shape);

 private:
  /// A table's lists lie in one workspace, so the address of the first stands for all.
  using Place = std::pair<GroupedShape, const int32_t*>;

  std::mutex mutex_;
  std::map<Place, CublasLtGroupedProduct> products_;
  std::map<GroupedShape, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

/// What a search for algorithms may choose from, which counts with as many rows in each group.
CublasLtPreference grouped_preference(const CublasLt& library, const GroupedShape& shape,
                                      int64_t workspace_bytes);

/// Why cuBLASLt does not have a shape's products here: it is too old, or offers no algorithm. Empty
/// if it has them. Asks without operands, so that it can be known before there is memory for them.
std::string cublaslt_grouped_missing(Runtime& runtime, const GroupedShape& shape);

/// Puts products of groups in bf16 into a stream of the device cuda (see device_grouped()). Throws
/// Error if cublaslt_grouped_missing() has something to say, or the library fails.
void multiply_by_cublaslt(const Execution& execution, std::string_view operation,
                          const GroupedShape& shape, const GroupedOperands& operands,
                          std::byte* workspace);

}  // namespace tessera
