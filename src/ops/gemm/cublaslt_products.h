#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ops/gemm/cublaslt.h"
#include "program/runtime.h"

namespace tessera {

/// A product, and the bytes to which its operands are aligned. Equal keys run by one algorithm.
struct CublasLtKey {
  GemmShape shape;  ///< in the form of tuned_shape()
  uint32_t alignment = 0;
  bool operator==(const CublasLtKey&) const = default;
};

/// The operands of a GemmShape, in the device's memory.
struct CublasLtOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;

  /// Returns the bytes to which all three are aligned, at most kProductAlignment.
  uint32_t alignment() const;
};

/// The scratch memory of one product.
struct CublasLtWorkspace {
  /// Takes device_gemm_workspace_bytes() of memory, and aligns its beginning.
  CublasLtWorkspace(const Target& target, const GemmShape& shape, std::byte* memory);
  /// Returns the bytes that an algorithm may ask for.
  static int64_t bytes(const Target& target, const GemmShape& shape);

  std::byte* address;
  int64_t size;
};

/// The rank's handle of cuBLASLt, with the descriptions and the algorithms of the products that the
/// rank has run. It is kept in the runtime's cache.
class CublasLtProducts {
 public:
  struct Product {
    CublasLtProduct description;
    cublasLtMatmulAlgo_t algorithm;
  };

  CublasLtProducts();

  const CublasLt& library() const { return library_; }
  cublasLtHandle_t handle() const { return handle_.get(); }
  /// Returns the product. The first call makes it, with the algorithm from the runtime's table of
  /// tuned products, or else with the library's first choice.
  const Product& product(Runtime& runtime, const CublasLtKey& key);
  /// Returns at most `limit` algorithms that the library offers, its own choice first. Throws
  /// NoProductError if there is none.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const CublasLtProduct& description,
                                                          const CublasLtKey& key,
                                                          int64_t workspace_bytes, int limit) const;
  void run(const Product& product, const GemmShape& shape, const CublasLtOperands& operands,
           const CublasLtWorkspace& workspace, Stream& stream) const;
  /// Returns the shapes of the products with kProductAlignment. Only such products are tuned.
  std::vector<GemmShape> shapes() const;

 private:
  struct KeyHash {
    size_t operator()(const CublasLtKey& key) const;
  };

  Product make(Runtime& runtime, const CublasLtKey& key) const;
  /// Throws Error if the library does not take the product's algorithm within `workspace_bytes`.
  void require_runnable(const Product& product, const GemmShape& shape,
                        int64_t workspace_bytes) const;

  CublasLt library_;
  decltype(cublasLtMatmul)* multiply_;
  CublasLtOwned<cublasLtHandle_t> handle_;
  std::unordered_map<CublasLtKey, Product, KeyHash> products_;
};

/// The alignment in bytes of the operands of tuned products. It suffices for vector loads and TMA.
/// Were larger ones told apart, one shape could have several algorithms.
inline constexpr uint32_t kProductAlignment = 16;

}  // namespace tessera
