#include <vector>

#include <gtest/gtest.h>
#include <hwloc.h>

#include "comm/core_place.h"

namespace tessera {
namespace {

/// A machine of hwloc's imagination.
class SyntheticMachine {
 public:
  explicit SyntheticMachine(const char* description) {
    hwloc_topology_init(&topology_);
    EXPECT_EQ(hwloc_topology_set_synthetic(topology_, description), 0) << description;
    EXPECT_EQ(hwloc_topology_load(topology_), 0);
  }
  ~SyntheticMachine() { hwloc_topology_destroy(topology_); }
  SyntheticMachine(const SyntheticMachine&) = delete;
  SyntheticMachine& operator=(const SyntheticMachine&) = delete;

  CorePlace place(const std::vector<int>& cores) const { return core_place_on(topology_, cores); }

 private:
  hwloc_topology_t topology_ = nullptr;
};

/// Two packages, each with two memories of two cores.
TEST(CorePlaces, AreThePackageAndTheMemoryOfAllCores) {
  const SyntheticMachine machine("package:2 numa:2 pu:2");
  EXPECT_EQ(machine.place({0}), (CorePlace{0, 0}));
  EXPECT_EQ(machine.place({0, 1}), (CorePlace{0, 0}));
  EXPECT_EQ(machine.place({2, 3}), (CorePlace{0, 1}));
  EXPECT_EQ(machine.place({5}), (CorePlace{1, 2}));
  EXPECT_EQ(machine.place({1, 2}), (CorePlace{0, -1})) << "of two memories";
  EXPECT_EQ(machine.place({3, 4}), (CorePlace{-1, -1})) << "of two packages";
  EXPECT_EQ(machine.place({0, 1, 2, 3, 4, 5, 6, 7}), (CorePlace{-1, -1})) << "not bound";
  EXPECT_EQ(machine.place({}), (CorePlace{-1, -1})) << "not known";
  EXPECT_EQ(machine.place({99}), (CorePlace{-1, -1})) << "no core of the machine";
}

TEST(CorePlaces, AMemoryMayBeOfSeveralPackages) {
  const SyntheticMachine machine("numa:1 package:2 pu:2");
  EXPECT_EQ(machine.place({0, 1}), (CorePlace{0, 0}));
  EXPECT_EQ(machine.place({2}), (CorePlace{1, 0}));
  EXPECT_EQ(machine.place({1, 2}), (CorePlace{-1, 0}));
}

}  // namespace
}  // namespace tessera
