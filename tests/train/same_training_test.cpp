#include "train/same_training.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(SameTraining, MayHaveAnotherPipelineWhichIsSaid) {
  const std::string text = testing::small_config("folder");
  const std::vector<std::string> vocabulary{"model.vocabulary_size=300"};
  const RunConfig saved = parse_config(text, "test", vocabulary);
  const std::vector<std::string> overrides{
      "model.vocabulary_size=300", "parallel.pipeline=2", "parallel.schedule=gpipe",
      "parallel.consecutive_micro_batches=1", "parallel.stage_layers=[0, 2]"};
  const RunConfig config = parse_config(text, "test", overrides);
  ::testing::internal::CaptureStderr();
  require_same_training({.step = 2}, saved, config, mesh_of(config, 2), "step-2", Logger());
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const char* change :
       {"parallel.pipeline changes from 1 to 2", "parallel.schedule changes from \"\" to \"gpipe\"",
        "parallel.consecutive_micro_batches changes from 0 to 1",
        "parallel.stage_layers changes from [] to [0, 2]"}) {
    EXPECT_THAT(log, HasSubstr(change));
  }
}

}  // namespace
}  // namespace tessera
