// cuDNN makes plans for a described H200, on machines without a device: this program finds the
// driver of tests/cudnn_driver/ as NVIDIA's.

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "config/load_config.h"
#include "ops/attention/cudnn/plan_cuda.h"
#include "support/error_of.h"

namespace tessera::testing {
namespace {

/// cuDNN and the described device, or why there is none.
struct Library {
  Library() {
    try {
      cudnn = std::make_unique<CudnnLibrary>();
    } catch (const Error& error) {
      missing = error.what();
      return;
    }
    std::ifstream file(fs::path(TESSERA_SOURCE) / "tests" / "cudnn" / "h200.json");
    const std::string description(std::istreambuf_iterator<char>(file), {});
    device = std::make_unique<CudnnDescriptor>(*cudnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                std::span<const char>(description));
    device->finalize("take the description of a device");
  }

  std::unique_ptr<CudnnLibrary> cudnn;
  std::unique_ptr<CudnnDescriptor> device;
  std::string missing;
};

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!library_.cudnn) GTEST_SKIP() << library_.missing;
  }
  int64_t asked(const CudnnAttentionKind& kind) const {
    return CudnnAttentionPlan(*library_.cudnn, {.description = library_.device.get()}, kind)
        .workspace_bytes();
  }

  Library library_;
};

/// An attention forward and backward, deterministic and not, with each way to hide documents that
/// runs take.
std::vector<CudnnAttentionKind> variants(CudnnAttentionKind kind) {
  std::vector<CudnnAttentionKind> result;
  for (const CudnnDocuments documents :
       {CudnnDocuments::none, CudnnDocuments::mask, CudnnDocuments::packed}) {
    kind.documents = documents;
    kind.backward = false;
    kind.deterministic = true;
    result.push_back(kind);
    kind.backward = true;
    if (documents != CudnnDocuments::packed) result.push_back(kind);
    kind.deterministic = false;
    result.push_back(kind);
  }
  return result;
}

/// The attentions of all presets, each once, by the file that has it first.
std::map<CudnnAttentionKind, std::string> attentions_of_presets() {
  std::map<CudnnAttentionKind, std::string> result;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const RunConfig config = load_config(entry.path());
    result.try_emplace({.sequences = config.train.micro_batch,
                        .sequence = config.data.context,
                        .heads = config.model.heads,
                        .kv_heads = config.model.kv_heads,
                        .head_dim = config.model.head_size()},
                       entry.path().filename());
  }
  return result;
}

constexpr int64_t kLittle = kCudnnRoom + (1 << 15);

/// What is planned holds what this cuDNN asks for, leaves room for a newer one, and not much more.
void expect_room(int64_t planned, int64_t asked, const std::string& what) {
  EXPECT_LE(asked + asked / 64 + kCudnnRoom / 2, planned) << what;
  EXPECT_LE(planned, asked + asked / 8 + kLittle) << what;
}

/// Each variant for one preset of each kind of heads, and the variants of a deterministic run's
/// forward and backward for the others: a plan takes cuDNN most of a second to make.
TEST_F(CudnnPlans, ExistForEveryPresetWithinThePlannedWorkspace) {
  const auto presets = attentions_of_presets();
  ASSERT_GE(presets.size(), 10U);
  std::set<std::pair<int64_t, bool>> kinds_of_heads;
  for (const auto& [preset, name] : presets) {
    const bool first =
        kinds_of_heads.emplace(preset.head_dim, preset.heads == preset.kv_heads).second;
    for (const CudnnAttentionKind& kind : variants(preset)) {
      if (!first && !(kind.deterministic && kind.documents == CudnnDocuments::mask)) continue;
      expect_room(CudnnWorkspace(kind).library, asked(kind), name + ": " + text(kind));
    }
  }
}

TEST_F(CudnnPlans, StayWithinThePlannedWorkspaceForOddShapes) {
  for (const CudnnAttentionKind& odd :
       {CudnnAttentionKind{
            .sequences = 3, .sequence = 257, .heads = 4, .kv_heads = 4, .head_dim = 80},
        {.sequences = 1, .sequence = 100, .heads = 6, .kv_heads = 2, .head_dim = 40},
        {.sequences = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_dim = 8},
        {.sequences = 2, .sequence = 384, .heads = 2, .kv_heads = 1, .head_dim = 256},
        {.sequences = 40, .sequence = 1100, .heads = 6, .kv_heads = 2, .head_dim = 64}}) {
    // All variants of the first, and of the others those that take most.
    for (const CudnnAttentionKind& kind : variants(odd)) {
      if (odd.sequence != 257 && !(kind.backward && kind.deterministic)) continue;
      EXPECT_LE(asked(kind), CudnnWorkspace(kind).library) << text(kind);
    }
  }
}

TEST_F(CudnnPlans, OfTheDeterministicGradientHoldTheGradientsOfAllScores) {
  CudnnAttentionKind kind{
      .sequences = 2, .sequence = 4096, .heads = 16, .kv_heads = 16, .head_dim = 128};
  kind.backward = true;
  EXPECT_GE(asked(kind), int64_t{2} * 16 * 4096 * 4096 * 2);
  kind.deterministic = false;
  EXPECT_LT(asked(kind), 1 << 20);
}

TEST_F(CudnnPlans, OfPackedDocumentsKeepDescriptionsOfGroupsAlone) {
  for (const int64_t sequences : {1, 16, 64}) {  // of 8 groups each
    CudnnAttentionKind kind{
        .sequences = sequences, .sequence = 4096, .heads = 32, .kv_heads = 4, .head_dim = 64};
    kind.documents = CudnnDocuments::packed;
    kind.deterministic = false;
    for (const bool backward : {false, true}) {
      kind.backward = backward;
      const int64_t bytes = asked(kind), planned = CudnnWorkspace(kind).library;
      EXPECT_LE(bytes, planned) << text(kind);
      EXPECT_LE(planned, bytes + kLittle) << text(kind);
      EXPECT_LT(bytes, 1 << 18) << text(kind);
    }
  }
}

TEST_F(CudnnPlans, OfPackedDocumentsWouldKeepAllScoresForEachGroupIfDeterministic) {
  CudnnAttentionKind kind{
      .sequences = 2, .sequence = 4096, .heads = 16, .kv_heads = 4, .head_dim = 128};
  kind.documents = CudnnDocuments::packed;
  kind.backward = true;
  EXPECT_GE(asked(kind), int64_t{16} * 16 * 4096 * 4096 * 2);
}

TEST_F(CudnnPlans, AreRefusedWithTheAttentionThatHasNone) {
  const CudnnAttentionKind kind{
      .sequences = 2, .sequence = 256, .heads = 4, .kv_heads = 2, .head_dim = 20};
  const std::string error = error_of([&] { asked(kind); });
  EXPECT_NE(error.find("attention of 2 sequences of 256 tokens, 4 heads on 2 of 20, bf16"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace tessera::testing
