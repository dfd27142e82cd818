#include "device/cublaslt_library_cuda.h"

#include <array>

#include "base/error.h"

namespace tessera {
namespace {

// The opaque structs may change with the major version, so the file's name must have this version.
#define TESSERA_TEXT_OF(number) #number
#define TESSERA_TEXT(number) TESSERA_TEXT_OF(number)
constexpr std::array<const char*, 1> kCublasLtNames{
    "libcublasLt.so." TESSERA_TEXT(CUBLAS_VER_MAJOR)};
#undef TESSERA_TEXT
#undef TESSERA_TEXT_OF
constexpr size_t kMajorUnit = 10000;  // 130100 is version 13.1.0

}  // namespace

CublasLt::CublasLt() : library_(kCublasLtNames, "matrix products on the device cuda") {
  if (version_number() / kMajorUnit == CUBLAS_VER_MAJOR) return;
  throw Error("{} is {}; matrix products need a cuBLASLt {}", file(), version_text(),
              CUBLAS_VER_MAJOR);
}

void CublasLt::check(cublasStatus_t status, const std::string& what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("{}: {} says: {}", what, version_text(),
              function<decltype(cublasLtGetStatusString)>("cublasLtGetStatusString")(status));
}

std::string CublasLt::version_text() const { return fmt::format("cuBLASLt {}", version_number()); }

size_t CublasLt::version_number() const {
  return function<decltype(cublasLtGetVersion)>("cublasLtGetVersion")();
}

}  // namespace tessera
