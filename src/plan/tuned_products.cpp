#include "plan/tuned_products.h"

#include "hardware/tuned_products_file.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {

void use_tuned_products(const RunConfig& config, Runtime& runtime) {
  const std::string& path = config.run.tuned_products;
  if (!path.empty()) use_tuned_products(runtime, read_tuned_products(path), path);
}

}  // namespace tessera
