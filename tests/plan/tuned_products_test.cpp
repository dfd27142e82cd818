#include "plan/tuned_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/host_target.h"
#include "support/error_of.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TunedTable tuned_on_h200() {
  return {.library = "cuBLASLt 130100", .device = "NVIDIA H200", .products = {}, .grouped = {}};
}

TEST(UseTunedProducts, OfAnotherLibraryOrDeviceAreRefused) {
  const TunedTable table = tuned_on_h200();
  EXPECT_NO_THROW(require_same_library(table, "cuBLASLt 130100", "NVIDIA H200", "t.json"));
  EXPECT_THAT(
      error_of([&] { require_same_library(table, "cuBLASLt 130400", "NVIDIA H200", "t.json"); }),
      AllOf(HasSubstr("t.json"), HasSubstr("cuBLASLt 130100"), HasSubstr("cuBLASLt 130400"),
            HasSubstr("tessera bench products")));
  EXPECT_THAT(error_of([&] {
                require_same_library(table, "cuBLASLt 130100", "NVIDIA H100 PCIe", "t.json");
              }),
              AllOf(HasSubstr("NVIDIA H200"), HasSubstr("NVIDIA H100 PCIe")));
}

TEST(UseTunedProducts, ADeviceWithoutAlgorithmsToChooseFromRefusesATable) {
  Runtime host(host_target(1));
  Runtime emulated = testing::make_runtime(host_target(1), testing::Emulation{});
  EXPECT_THAT(error_of([&] { use_tuned_products(host, tuned_on_h200(), "t.json"); }),
              AllOf(HasSubstr("t.json"), HasSubstr("the device cpu"), HasSubstr("run.device"),
                    HasSubstr("leave run.tuned_products out")));
  EXPECT_THAT(error_of([&] { use_tuned_products(emulated, tuned_on_h200(), "t.json"); }),
              HasSubstr("the device emulated"));
}

}  // namespace
}  // namespace tessera
