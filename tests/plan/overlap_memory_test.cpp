#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "plan/overlap_step.h"
#include "plan/small_run.h"
#include "plan/step_plan.h"

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

MemoryPlan plan_with(Keys keys, const std::string& key, int rank) {
  keys.push_back(key);
  const RunConfig config = testing::small_run(4, keys);
  return plan_step(config, overlap_target(Device::cpu), {mesh_of(config, 4), rank}).memory;
}

class OverlapMemory : public ::testing::TestWithParam<Keys> {};

TEST_P(OverlapMemory, BoundsTheBytesInUseBeyondThoseOfTheWrittenOrder) {
  for (const int rank : {0, 3}) {
    const int64_t written = plan_with(GetParam(), "parallel.overlap=false", rank).live_bytes;
    for (const auto& [memory, bound] : {std::pair<std::string, int64_t>{"0 B", 0},
                                        {"4 KiB", 4 << 10},
                                        {"160 KiB", 160 << 10},
                                        {"512 MiB", 512 << 20}}) {
      const int64_t more =
          plan_with(GetParam(), "parallel.overlap_memory='" + memory + "'", rank).live_bytes -
          written;
      EXPECT_LE(more, bound) << memory << ", rank " << rank;
    }
  }
}

const Keys kMixture{"model.family='mixtral'", "model.experts=4", "model.experts_per_token=2",
                    "model.expert_size=16", "model.feed_forward_size=0"};

Keys mixture_with(const Keys& more) {
  Keys keys = kMixture;
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OverlapMemory,
    ::testing::Values(Keys{}, Keys{"parallel.tensor=2"}, Keys{"parallel.tensor=4"},
                      Keys{"shard.optimizer='all'", "shard.gradients='all'"},
                      Keys{"shard.optimizer='all'", "shard.gradients='all'", "shard.weights='all'"},
                      Keys{"shard.optimizer='all'", "shard.gradients='all'", "shard.weights='all'",
                           "parallel.levels=[2]", "shard.gradients_wire='int4'"},
                      Keys{"parallel.levels=[2]", "shard.gradients_wire='int4'"},
                      mixture_with({"parallel.expert=4"}),
                      mixture_with({"model.layers=2", "model.vocabulary_size=1024",
                                    "parallel.tensor=2", "shard.optimizer='all'",
                                    "shard.gradients='all'", "train.global_batch=6",
                                    "train.precision='fp32'"}),
                      mixture_with({"parallel.expert=4", "parallel.tensor=2"}),
                      Keys{"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.tensor=2"},
                      Keys{"parallel.pipeline=2", "parallel.virtual_stages=2"}));

}  // namespace
}  // namespace tessera
