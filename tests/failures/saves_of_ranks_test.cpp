// Every file operation, in turn, of a save by four ranks meets a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/verify_checkpoint.h"
#include "comm/in_process/run_mesh.h"
#include "fault/call_under.h"
#include "ops/host_target.h"
#include "support/names_in.h"
#include "support/temporary_folder.h"
#include "train/save_state.h"

namespace tessera {
namespace {

using testing::arm_fault;
using ::testing::Each;
using testing::Fault;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const Mesh& mesh() {
  static const Mesh mesh(MeshSizes{.tensor = 2, .data = {2}});
  return mesh;
}

std::vector<ParameterSpec> specs() {
  const Distribution dense(MeshView::dense);
  std::vector<ParameterSpec> specs;
  specs.push_back(
      {.name = "rows", .shape = {8, 6}, .distribution = dense.with(mesh().tensor(), sharded(0))});
  specs.push_back({.name = "columns",
                   .shape = {4, 8},
                   .distribution = dense.with(mesh().tensor(), sharded(1))});
  specs.push_back({.name = "whole", .shape = {12}, .distribution = dense});
  for (ParameterSpec& spec : specs) spec.unit_index = spec.name == "whole" ? 1 : 0;
  return specs;
}

/// The units of these parameters: of those that are split over the tensor axis, and of the other.
const std::vector<ParameterUnit>& units() {
  static const std::vector<ParameterUnit> units = [] {
    std::vector<ParameterUnit> units(2);
    units[0].distribution =
        Distribution(MeshView::dense).with(mesh().tensor(), sharded(0, {.kind = PieceKind::flat}));
    return units;
  }();
  return units;
}

/// The element of a tensor at a place of the whole, in the checkpoint of a seed.
float element(int64_t seed, const std::string& name, int64_t place) {
  return static_cast<float>(seed * 1000 + place) + static_cast<float>(name.size()) / 64;
}

/// Saves the checkpoint of a seed by four ranks, which are threads.
void save_as(const fs::path& directory, int64_t step, int64_t seed) {
  CheckpointState state;
  state.step = step;
  state.values["seed"] = seed;
  World world(4, std::chrono::seconds(20));
  run_mesh(world, mesh(), [&](RankGroups& groups) {
    const RankControl control(groups);
    Runtime runtime(host_target(1));
    runtime.join(groups);
    const std::vector<ParameterSpec> parameters = specs();
    const StateShard shard({mesh(), groups.rank()}, units(), parameters, {});
    StateToSave save{
        .directory = directory, .state = state, .tensors = {}, .shard = shard, .carried = {}};
    std::vector<KeptTensor> masters;
    for (size_t parameter = 0; parameter < parameters.size(); ++parameter) {
      const ParameterSpec& spec = parameters[parameter];
      const TensorPiece piece(mesh(), spec.distribution, spec.shape, groups.rank());
      const Tensor tensor(piece.shape(), DType::f32);
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        tensor.data<float>()[i] = element(seed, spec.name, piece.element_of_whole(i));
      }
      masters.push_back({.parameter = &spec,
                         .index = parameter,
                         .kind = Kept::master,
                         .dtype = tensor.dtype(),
                         .distribution = shard.distribution(parameter, Kept::master),
                         .pieces = {piece},
                         .memory = tensor});
    }
    for (const KeptTensor& master : masters) save.tensors.push_back(&master);
    save_state(save, {.threads = 1}, {runtime, control});
  });
}

/// The seed of a checkpoint, all of which is checked.
int64_t seed_of(const fs::path& path) {
  const VerifyReport report = verify_checkpoint(path);
  EXPECT_TRUE(report.ok() && report.warnings.empty()) << report.text();
  const CheckpointReader reader(path);
  const int64_t seed = reader.state().integer("seed");
  for (const ParameterSpec& spec : specs()) {
    const Tensor tensor(spec.shape, DType::f32);
    reader.load({"parameters", spec.name, tensor});
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      EXPECT_EQ(tensor.data<float>()[i], element(seed, spec.name, i)) << spec.name;
    }
  }
  return seed;
}

class SavesOfRanks : public ::testing::TestWithParam<Fault> {
 protected:
  SavesOfRanks() : root_(fs::canonical(folder_.path())) {
    arm_fault(Fault::count, 0, root_.c_str());
  }
  ~SavesOfRanks() override { arm_fault(Fault::none, 0, ""); }

  TemporaryFolder folder_;
  fs::path root_;
};

TEST_P(SavesOfRanks, LeaveACompleteCheckpointAtEveryOperation) {
  constexpr int64_t kOld = 1, kReplaced = 2, kNew = 9;
  int64_t at = 0;
  bool hit = true;
  int killed = 0, failed = 0;
  while (hit && !HasFailure()) {
    const fs::path directory = root_ / "checkpoints";
    save_as(directory, 1, kOld);
    save_as(directory, 2, kReplaced);
    const testing::CallUnderFault saving =
        testing::call_under(GetParam(), ++at, directory, [&] { save_as(directory, 2, kNew); });
    arm_fault(Fault::count, 0, root_.c_str());
    SCOPED_TRACE(fmt::format("operation {}: {}", at, saving.error));
    hit = saving.hit;
    killed += saving.killed ? 1 : 0;
    failed += saving.error.empty() ? 0 : 1;
    const CheckpointListing listing = list_checkpoints(directory);
    EXPECT_THAT(listing.broken, IsEmpty());
    ASSERT_FALSE(listing.complete.empty());
    EXPECT_EQ(seed_of(listing.complete.front().path), kOld);
    const int64_t seed = seed_of(listing.complete.back().path);
    if (!saving.killed && saving.error.empty()) {
      EXPECT_EQ(seed, kNew) << "the save was said to be done";
    } else {
      EXPECT_THAT(seed, ::testing::AnyOf(kNew, kReplaced));
    }
    if (!saving.error.empty()) {
      EXPECT_THAT(saving.error, HasSubstr(directory.string()));
    }
    save_as(directory, 3, 3);
    EXPECT_THAT(testing::names_in(directory), Each(MatchesRegex("step-[0-9]+")));
    EXPECT_EQ(seed_of(checkpoint_path(directory, 3)), 3);
    fs::remove_all(directory);
  }
  EXPECT_GT(at, 60) << "few operations for four ranks: does the library see them?";
  EXPECT_GE(killed, GetParam() == Fault::kill ? 60 : 0);
  EXPECT_GE(failed, GetParam() == Fault::fail ? 30 : 0);
  EXPECT_LE(failed, GetParam() == Fault::cut ? 0 : at) << "a short write is no failure";
}

INSTANTIATE_TEST_SUITE_P(Faults, SavesOfRanks,
                         ::testing::Values(Fault::fail, Fault::broken, Fault::cut, Fault::kill),
                         testing::fault_name);

}  // namespace
}  // namespace tessera
