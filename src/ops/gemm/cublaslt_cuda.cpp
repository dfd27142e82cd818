#include <array>

#include "base/error.h"
#include "ops/gemm/column_major.h"
#include "ops/gemm/cublaslt.h"

namespace tessera {
namespace {

// The opaque structs may change with the library's major version.
#define TESSERA_TEXT_OF(number) #number
#define TESSERA_TEXT(number) TESSERA_TEXT_OF(number)
constexpr std::array<const char*, 1> kCublasLtNames{
    "libcublasLt.so." TESSERA_TEXT(CUBLAS_VER_MAJOR)};
#undef TESSERA_TEXT
#undef TESSERA_TEXT_OF

}  // namespace

CublasLt::CublasLt() : library_(kCublasLtNames, "matrix products on the device cuda") {}

void CublasLt::check(cublasStatus_t status, const std::string& what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("{}: {} says: {}", what, version(),
              function<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString")(status));
}

std::string CublasLt::version() const {
  return fmt::format("cuBLASLt {}", function<decltype(cublasLtGetVersion)>("cublasLtGetVersion")());
}

}  // namespace tessera
