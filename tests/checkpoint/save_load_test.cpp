#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/names_in.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_in;
using ::testing::Not;

TEST(SaveLoad, EverythingComesBack) {
  const TemporaryFolder folder;
  const SampleTensors saved = sample_tensors();
  const std::vector<CarriedFile> extra{{"tokenizer.model", std::string("any\0bytes", 9)},
                                       {"empty.txt", ""}};
  const fs::path path =
      save_checkpoint(folder / "runs/checkpoints", sample_state(100), saved.items(), extra);
  EXPECT_EQ(path, folder / "runs/checkpoints/step-00000100");
  EXPECT_THAT(names_in(path),
              ElementsAre("config.toml", "empty.txt", "manifest.json", "optimizer.safetensors",
                          "parameters.safetensors", "router.safetensors", "tokenizer.model"));
  EXPECT_THAT(names_in(folder / "runs/checkpoints"), ElementsAre("step-00000100"));

  const CheckpointReader reader(path);
  EXPECT_EQ(reader.state().step, 100);
  EXPECT_EQ(reader.state().created_by, "tessera test");
  EXPECT_EQ(reader.state().config, sample_state(100).config);
  EXPECT_EQ(reader.state().values, sample_state(100).values);
  EXPECT_EQ(reader.state().integer("data.instance"), 123456789012345);
  EXPECT_EQ(reader.state().text("tokenizer"), "8b1a9953c4611296");
  EXPECT_EQ(reader.extra_file("tokenizer.model"), std::string("any\0bytes", 9));
  SampleTensors loaded = saved.empty_copy();
  load_all(reader, loaded.items(), 2);
  EXPECT_TRUE(loaded.same_bytes(saved));
  EXPECT_TRUE(verify_checkpoint(path).ok());
}

TEST(SaveLoad, BitsOfNaNAndInfinityAreKept) {
  const TemporaryFolder folder;
  SampleTensors saved;
  const Tensor tensor = saved.add("parameters", "w", {4}, DType::f32);
  const std::array<uint32_t, 4> bits{0x7fc00001u, 0xff800000u, 0x80000000u, 0x00000001u};
  std::memcpy(tensor.raw(), bits.data(), sizeof(bits));
  const fs::path path = save_checkpoint(folder.path(), sample_state(1), saved.items());
  SampleTensors loaded = saved.empty_copy();
  load_all(CheckpointReader(path), loaded.items());
  EXPECT_TRUE(loaded.same_bytes(saved));
}

TEST(SaveLoad, StateValuesAreExact) {
  const TemporaryFolder folder;
  CheckpointState state;
  state.step = 0;
  const double infinity = std::numeric_limits<double>::infinity();
  state.values = {{"smallest", std::numeric_limits<int64_t>::min()},
                  {"largest", std::numeric_limits<int64_t>::max()},
                  {"minus_one", int64_t{-1}},
                  {"whole", 3.0},
                  {"minus_zero", -0.0},
                  {"denormal", 5e-324},
                  {"pi", 3.141592653589793},
                  {"huge", std::numeric_limits<double>::max()},
                  {"infinity", infinity},
                  {"minus_infinity", -infinity},
                  {"nan", std::numeric_limits<double>::quiet_NaN()},
                  {"empty", std::string()},
                  {"text", std::string("line\n\"quoted\" \\ \u00e9 \x01")}};
  const CounterRandom random(1, "doubles");
  for (uint64_t i = 0; i < 200; ++i) {
    const auto value = std::bit_cast<double>(random.bits(i));
    if (std::isfinite(value)) state.values["random" + std::to_string(i)] = value;
  }
  const CheckpointReader reader(save_checkpoint(folder.path(), state, {}));
  ASSERT_EQ(reader.state().values.size(), state.values.size());
  for (const auto& [name, value] : state.values) {
    const StateValue& found = reader.state().values.at(name);
    ASSERT_EQ(found.index(), value.index()) << name;
    if (name == "nan") {
      EXPECT_TRUE(std::isnan(std::get<double>(found)));
    } else if (const auto* real = std::get_if<double>(&value)) {
      EXPECT_EQ(std::bit_cast<uint64_t>(std::get<double>(found)), std::bit_cast<uint64_t>(*real))
          << name;
    } else {
      EXPECT_EQ(found, value) << name;
    }
  }
  EXPECT_EQ(reader.state().config, "");
  EXPECT_THAT(error_of([&] { reader.state().integer("absent"); }), HasSubstr("'absent'"));
  EXPECT_THAT(error_of([&] { reader.state().integer("pi"); }), HasSubstr("not an integer"));
  EXPECT_THAT(error_of([&] { reader.state().number("largest"); }), HasSubstr("not a real number"));
  EXPECT_THAT(error_of([&] { reader.state().text("largest"); }), HasSubstr("not a text"));
}

TEST(SaveLoad, LargeGroupsAreSplitAndTheBytesDoNotDependOnThreads) {
  const TemporaryFolder folder;
  SampleTensors saved;
  for (int i = 0; i < 7; ++i) {
    saved.add("parameters", "w" + std::to_string(i), {i == 3 ? 300 : 30}, DType::f32);
    saved.add("optimizer", "w" + std::to_string(i), {i == 3 ? 300 : 30}, DType::f32);
  }
  saved.fill(4);
  const SaveOptions one{.file_bytes = 256, .threads = 1};
  const SaveOptions many{.file_bytes = 256, .threads = 4};
  const fs::path a = save_checkpoint(folder / "a", sample_state(5), saved.items(), {}, one);
  const fs::path b = save_checkpoint(folder / "b", sample_state(5), saved.items(), {}, many);
  // 120 bytes a tensor, so two in a file; w3 has one of its own.
  const auto names = names_in(a);
  EXPECT_EQ(names.size(), 2 + 2 * 5);
  EXPECT_THAT(names, ::testing::Contains("parameters-00003-of-00005.safetensors"));
  ASSERT_EQ(names_in(b), names);
  for (const std::string& name : names) EXPECT_EQ(read_file(a / name), read_file(b / name)) << name;
  SampleTensors loaded = saved.empty_copy();
  load_all(CheckpointReader(a), loaded.items());
  EXPECT_TRUE(loaded.same_bytes(saved));
}

TEST(SaveLoad, SavingWhatWasLoadedGivesTheSameFiles) {
  const TemporaryFolder folder;
  const SampleTensors saved = sample_tensors();
  const fs::path first = save_checkpoint(folder / "a", sample_state(5), saved.items());
  const CheckpointReader reader(first);
  SampleTensors loaded = saved.empty_copy();
  load_all(reader, loaded.items());
  const fs::path second = save_checkpoint(folder / "b", reader.state(), loaded.items());
  for (const std::string& name : names_in(first)) {
    EXPECT_EQ(read_file(first / name), read_file(second / name)) << name;
  }
}

TEST(SaveLoad, OneGroupAlone) {
  const TemporaryFolder folder;
  const SampleTensors saved = sample_tensors();
  const CheckpointReader reader(save_checkpoint(folder.path(), sample_state(5), saved.items()));
  SampleTensors loaded;
  for (const NamedTensor& item : saved.items()) {
    if (item.group == "parameters") {
      loaded.add(item.group, item.name, item.tensor.shape(), item.tensor.dtype());
    }
  }
  load_group(reader, "parameters", loaded.items());
  for (size_t i = 0; i < loaded.items().size(); ++i) {
    const Tensor& found = loaded.items()[i].tensor;
    EXPECT_EQ(
        std::memcmp(found.raw(), saved.items()[i].tensor.raw(), static_cast<size_t>(found.bytes())),
        0);
  }
  EXPECT_THAT(error_of([&] { load_all(reader, loaded.items()); }),
              HasSubstr("'optimizer/scale' of the checkpoint has no place"));
}

TEST(SaveLoad, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  const TemporaryFolder folder;
  SampleTensors saved;
  saved.add("parameters", "kept", {2, 3}, DType::f32);
  saved.add("parameters", "reshaped", {2, 3}, DType::f32);
  saved.add("parameters", "retyped", {2, 3}, DType::f32);
  saved.add("parameters", "left_over", {2, 3}, DType::f32);
  saved.fill(1);
  const CheckpointReader reader(save_checkpoint(folder.path(), sample_state(5), saved.items()));
  SampleTensors target;
  target.add("parameters", "kept", {2, 3}, DType::f32);
  target.add("parameters", "reshaped", {3, 2}, DType::f32);
  target.add("parameters", "retyped", {2, 3}, DType::bf16);
  target.add("parameters", "new", {2, 3}, DType::f32);
  const std::string message = error_of([&] { load_all(reader, target.items()); });
  EXPECT_THAT(message, HasSubstr("'parameters/reshaped' is f32 [2, 3] in the checkpoint, expected "
                                 "f32 [3, 2]"));
  EXPECT_THAT(message, HasSubstr("'parameters/retyped' is f32 [2, 3] in the checkpoint, expected "
                                 "bf16 [2, 3]"));
  EXPECT_THAT(message, HasSubstr("'parameters/new' is missing in the checkpoint"));
  EXPECT_THAT(message, HasSubstr("'parameters/left_over' of the checkpoint has no place"));
  EXPECT_THAT(message, Not(HasSubstr("kept")));
  EXPECT_TRUE(target.same_bytes(target.empty_copy()));
  EXPECT_THAT(error_of([&] { reader.load(target.items()[3]); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { reader.load(target.items()[1]); }), HasSubstr("expected f32 [3, 2]"));
  reader.load(target.items()[0]);
}

TEST(SaveLoad, TheSameStepAgainReplacesTheCheckpoint) {
  const TemporaryFolder folder;
  save_checkpoint(folder.path(), sample_state(5), sample_tensors(1).items());
  const SampleTensors newer = sample_tensors(2);
  const fs::path path = save_checkpoint(folder.path(), sample_state(5), newer.items());
  SampleTensors loaded = newer.empty_copy();
  load_all(CheckpointReader(path), loaded.items());
  EXPECT_TRUE(loaded.same_bytes(newer));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000005"));
}

TEST(SaveLoad, NamesThatCollideAreRefused) {
  const TemporaryFolder folder;
  const SampleTensors tensors = sample_tensors();
  std::vector<NamedTensor> twice = tensors.items();
  twice.push_back(twice.front());
  const fs::path directory = folder / "checkpoints";
  EXPECT_THAT(error_of([&] { save_checkpoint(directory, sample_state(5), twice); }),
              HasSubstr("'parameters/embedding' is to be saved twice"));
  for (const char* name :
       {"manifest.json", "config.toml", "router.safetensors", "manifest.json.partial"}) {
    const std::vector<CarriedFile> extra{{name, "x"}};
    EXPECT_THAT(
        error_of([&] { save_checkpoint(directory, sample_state(5), tensors.items(), extra); }),
        HasSubstr("is taken"))
        << name;
  }
  EXPECT_FALSE(fs::exists(directory)) << "the failed save left something";
}

}  // namespace
}  // namespace tessera
