#include "plan/tuned_products.h"

#include <utility>

#include "base/error.h"
#include "base/words.h"
#include "config/read_for_key.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {

void use_tuned_products(const RunConfig& config, Runtime& runtime) {
  const std::string& path = config.run.tuned_products;
  if (path.empty()) return;
  read_for_key("run.tuned_products", path,
               [&] { use_tuned_products(runtime, read_tuned_products(path), path); });
}

void use_tuned_products(Runtime& runtime, TunedTable&& table, const std::string& origin) {
  const Device device = runtime.target().device;
  if (device != Device::cuda) {
    throw Error(
        "{} has products tuned on {}; the device {} has one algorithm for each: leave "
        "run.tuned_products out, or set run.device = \"cuda\"",
        origin, table.device, word(device));
  }
  require_same_library(table, device_gemm_library(runtime), runtime.accelerator()->name(), origin);
  runtime.cache<TunedProducts>() = {.in_use = true, .products = std::move(table.products)};
  runtime.cache<TunedGroups>() = {.in_use = true, .products = std::move(table.grouped)};
}

void require_same_library(const TunedTable& table, const std::string& library,
                          const std::string& device, const std::string& origin) {
  if (table.library == library && table.device == device) return;
  throw Error(
      "{} holds products tuned with {} on {}; this is {} on {}. Tune here with `tessera bench "
      "products`, or leave run.tuned_products out",
      origin, table.library, table.device, library, device);
}

}  // namespace tessera
