#include "checkpoint/hugging_face/import.h"

#include <cmath>
#include <csignal>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "../sample.h"
#include "base/interrupt.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/verify_checkpoint.h"
#include "model/model.h"
#include "support/error_of.h"
#include "support/hugging_face_folder.h"
#include "support/joined_convolutions.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HuggingFaceFolder;
using ::testing::Not;
using testing::small_olmoe_config;

constexpr const char* kImported[] = {
    "olmo",    "olmoe", "llama",       "llama_tied",    "llama_rope_scaling",
    "mixtral", "zaya",  "zaya_untied", "zaya_ungrouped"};

fs::path fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/models" / name;
}

/// The checkpoint's weights, widened to f32.
SampleTensors load(const fs::path& checkpoint, const ModelConfig& model) {
  SampleTensors tensors;
  const ParameterList parameters = model_parameters(model, DType::f32);
  for (const ParameterSpec& spec : parameters.specs()) {
    tensors.add("parameters", spec.name, spec.shape, DType::f32);
  }
  load_all(CheckpointReader(checkpoint), tensors.items());
  return tensors;
}

class ImportTest : public ::testing::Test {
 protected:
  fs::path import(const fs::path& source) {
    return SourceModel(source).import(folder_ / "out", "", false);
  }
  /// The error of an import, which leaves nothing behind.
  std::string import_error(const fs::path& source) {
    const std::string message = error_of([&] { import(source); });
    EXPECT_FALSE(fs::exists(folder_ / "out")) << message;
    return message;
  }
  HuggingFaceFolder model(DType dtype = DType::bf16, ExpertNaming naming = ExpertNaming::single) {
    return {folder_ / "source", small_olmoe_config(), dtype, naming};
  }

  TemporaryFolder folder_;
};

TEST_F(ImportTest, WeightsAreThoseThatTransformersHas) {
  for (const std::string name : kImported) {
    const SourceModel source(fixture(name));
    EXPECT_THAT(source.notes(), ElementsAre());
    const fs::path checkpoint = source.import(folder_ / name, "", false);
    EXPECT_EQ(checkpoint, folder_ / name / "step-00000000");
    EXPECT_EQ(find_checkpoint(folder_ / name).path, checkpoint);
    EXPECT_TRUE(verify_checkpoint(checkpoint).ok());
    const SampleTensors loaded = load(checkpoint, source.config().model);
    const SafetensorsReader expected(fixture(name) / "expected.safetensors");
    for (const NamedTensor& item : loaded.items()) {
      const testing::ReferencePart part = testing::reference_part(item.name);
      const SafetensorsEntry* entry = expected.find("initial/" + part.name);
      ASSERT_NE(entry, nullptr) << name << ": " << item.name;
      EXPECT_TRUE(std::ranges::equal(
          testing::cut_to(expected.read(*entry), part, source.config().model),
          std::span(item.tensor.raw(), static_cast<size_t>(item.tensor.bytes()))))
          << name << ": " << item.name;
    }
  }
}

TEST_F(ImportTest, EveryNamingShardingAndTypeGivesTheSameWeights) {
  const auto single = [&](DType dtype) {
    HuggingFaceFolder source = model(dtype);
    source.write();
    return source;
  };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const HuggingFaceFolder source = single(dtype);
    const SourceModel opened(source.path());
    EXPECT_EQ(opened.widest(), dtype);
    const fs::path whole = opened.import(folder_ / "whole", "", false);
    const CheckpointReader reader(whole);
    EXPECT_EQ(reader.find("parameters", "layers.1.experts.down")->dtype, dtype);
    EXPECT_EQ(reader.find("parameters", "layers.1.experts.down")->shape, Shape({3, 16, 8}));
    EXPECT_EQ(reader.manifest().tensor_bytes(), opened.bytes());
    const SampleTensors expected = load(whole, opened.config().model);
    // One expert's weight, element by element.
    const Tensor theirs = source.tensor("model.layers.1.mlp.experts.2.up_proj.weight");
    std::vector<float> widened(static_cast<size_t>(theirs.elements()));
    convert(theirs, Tensor::wrap(widened.data(), theirs.shape(), DType::f32));
    for (const NamedTensor& item : expected.items()) {
      if (item.name != "layers.1.experts.up") continue;
      EXPECT_EQ(std::memcmp(item.tensor.slice(2, 3).raw(), widened.data(), 4 * widened.size()), 0);
    }

    fs::remove_all(source.path());
    source.write_shards(5);
    const fs::path sharded = SourceModel(source.path()).import(folder_ / "sharded", "", false);
    EXPECT_TRUE(load(sharded, opened.config().model).same_bytes(expected));
    fs::remove_all(source.path());
    fs::remove_all(folder_ / "whole");
    fs::remove_all(folder_ / "sharded");
  }
}

TEST_F(ImportTest, FilesOfTheTokenizerAreCarriedAlong) {
  model().write();
  write_file(folder_ / "source/tokenizer.json", "{}");
  write_file(folder_ / "source/tokenizer_config.json", "{\"a\": 1}");
  write_file(folder_ / "source/README.md", "text");
  const CheckpointReader reader(import(folder_ / "source"));
  EXPECT_EQ(reader.extra_file("tokenizer_config.json"), "{\"a\": 1}");
  EXPECT_EQ(reader.extra_file("tokenizer.json"), "{}");
  EXPECT_THAT(error_of([&] { reader.extra_file("README.md"); }), HasSubstr("carries no file"));
  EXPECT_EQ(reader.state().text("hugging_face.architecture"), "OlmoeForCausalLM");
  EXPECT_EQ(reader.state().step, 0);
}

TEST_F(ImportTest, EveryTensorIsUsedOrNamed) {
  HuggingFaceFolder source = model();
  source.remove("model.layers.1.mlp.experts.2.up_proj.weight");
  source.add("model.layers.0.mlp.experts.3.up_proj.weight", {8, 16}, DType::bf16);
  source.add("model.layers.0.self_attn.q_proj.weight", {16, 8}, DType::bf16);
  source.add("model.layers.0.self_attn.q_proj.bias", {16}, DType::bf16);
  source.write();
  const std::string message = import_error(source.path());
  EXPECT_THAT(message,
              HasSubstr("'model.layers.1.mlp.experts.2.up_proj.weight' [8, 16] is missing"));
  EXPECT_THAT(message,
              HasSubstr("'model.layers.0.mlp.experts.3.up_proj.weight' [8, 16] has no place"));
  EXPECT_THAT(message,
              HasSubstr("'model.layers.0.self_attn.q_proj.weight' is [16, 8], expected [16, 16]"));
  EXPECT_THAT(message, HasSubstr("'model.layers.0.self_attn.q_proj.bias' [16] has no place"));
}

TEST_F(ImportTest, ALongListOfDifferencesIsCut) {
  HuggingFaceFolder source = model();
  for (int i = 0; i < 30; ++i) source.add("stray." + std::to_string(i), {1}, DType::bf16);
  source.write();
  EXPECT_THAT(import_error(source.path()), HasSubstr("and 20 more"));
}

TEST_F(ImportTest, BothNamingsAtOnceAreRefused) {
  HuggingFaceFolder source = model(DType::bf16, ExpertNaming::fused);
  source.add("model.layers.1.mlp.experts.2.up_proj.weight", {8, 16}, DType::bf16);
  source.write();
  EXPECT_THAT(import_error(source.path()),
              HasSubstr("experts.2.up_proj.weight' [8, 16] has no place"));
}

TEST_F(ImportTest, ATiedHeadMayStandThereTwiceButNotDiffer) {
  HuggingFaceFolder source = model();
  source.config()["tie_word_embeddings"] = true;
  source.remove("lm_head.weight");
  const Tensor embedding = source.tensor("model.embed_tokens.weight");
  const Tensor head = source.add("lm_head.weight", embedding.shape(), DType::bf16);
  source.write();
  EXPECT_THAT(import_error(source.path()), HasSubstr("'lm_head.weight' that differs"));
  head.copy_from(embedding);
  source.write();
  import(source.path());
  fs::remove_all(folder_ / "out");
  source.add("lm_head.weight", {16, 300}, DType::bf16);
  source.write();
  EXPECT_THAT(import_error(source.path()),
              HasSubstr("'lm_head.weight' that is BF16 [16, 300], not BF16 [300, 16] as"));
  source.add("lm_head.weight", {300, 16}, DType::f16);
  source.write();
  EXPECT_THAT(import_error(source.path()), HasSubstr("that is F16 [300, 16], not BF16"));
}

TEST_F(ImportTest, AModelOfFarMoreTensorsIsRefusedByItsCount) {
  HuggingFaceFolder source = model();
  source.config()["num_hidden_layers"] = 4096;
  source.config()["num_experts"] = 4096;
  source.write();
  EXPECT_THAT(import_error(source.path()),
              HasSubstr("has " + std::to_string(source.names().size()) +
                        " tensors, but its config.json (num_hidden_layers 4096, num_experts 4096) "
                        "describes a model of 50"));
}

TEST_F(ImportTest, APipeForAConfigurationIsRefused) {
  model().write();
  fs::remove(folder_ / "source/config.json");
  ASSERT_EQ(::mkfifo((folder_ / "source/config.json").c_str(), 0600), 0);
  EXPECT_THAT(import_error(folder_ / "source"), HasSubstr("not a regular file"));
}

TEST_F(ImportTest, ASourceThatShrinksIsNamed) {
  model().write();
  const SourceModel source(folder_ / "source");
  const fs::path path = folder_ / "source/model.safetensors";
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_THAT(error_of([&] { source.import(folder_ / "deep/out", "", false); }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("was cut short while it was read")));
  EXPECT_FALSE(fs::exists(folder_ / "deep")) << "an empty folder was left behind";
}

TEST_F(ImportTest, ComputedFrequenciesOfOldFilesAreNotWeights) {
  HuggingFaceFolder source = model();
  source.add("model.rotary_emb.inv_freq", {4}, DType::f32);
  source.write();
  EXPECT_THAT(SourceModel(source.path()).notes(),
              ElementsAre(HasSubstr("tensor 'model.rotary_emb.inv_freq' is computed")));
  source.remove("model.rotary_emb.inv_freq");
  for (const char* layer : {"0", "1"}) {
    source.add(fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", layer), {4},
               DType::f32);
  }
  source.write();
  const SourceModel opened(source.path());
  EXPECT_THAT(opened.notes(), ElementsAre(HasSubstr("each of 2 tensors such as 'model.layers.0")));
  EXPECT_EQ(opened.widest(), DType::bf16);
}

TEST_F(ImportTest, AMissingHeadMayBeATiedOne) {
  HuggingFaceFolder source = model();
  source.remove("lm_head.weight");
  source.write();
  EXPECT_THAT(import_error(source.path()),
              HasSubstr("'lm_head.weight' [300, 16] is missing; if the model computes logits with "
                        "its embedding, set tie_word_embeddings to true"));
}

TEST_F(ImportTest, TypesAreChecked) {
  HuggingFaceFolder source = model();
  source.add("model.norm.weight", {16}, DType::f32);  // of another type than the rest: taken
  source.write();
  EXPECT_EQ(SourceModel(source.path()).widest(), DType::f32);
  source.add("model.layers.0.mlp.experts.1.up_proj.weight", {8, 16}, DType::f16);
  source.write();
  EXPECT_THAT(import_error(source.path()),
              HasSubstr("'model.layers.0.mlp.experts.0.up_proj.weight' is BF16 and "
                        "'model.layers.0.mlp.experts.1.up_proj.weight' is F16"));
  source.add("model.layers.0.mlp.experts.1.up_proj.weight", {8, 16}, DType::f64);
  source.write();
  EXPECT_THAT(import_error(source.path()), HasSubstr("has elements of type F64"));
}

TEST_F(ImportTest, WhatIsNotFiniteIsNamedByTensorAndElement) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      HuggingFaceFolder source = model(dtype);
      const Tensor tensor = source.tensor("model.layers.1.mlp.experts.1.down_proj.weight");
      Tensor value = Tensor::wrap(const_cast<float*>(&bad), {1}, DType::f32);
      convert(value, tensor.view(77, {1}));
      source.write();
      EXPECT_THAT(
          import_error(source.path()),
          HasSubstr("element 77 of tensor 'model.layers.1.mlp.experts.1.down_proj.weight' is "
                    "NaN or infinite"));
    }
  }
}

TEST_F(ImportTest, AFolderWithACheckpointIsRefusedAndWhatAKilledImportLeftIsReplaced) {
  model().write();
  fs::create_directories(folder_ / "out/step-00000000.partial");
  write_file(folder_ / "out/step-00000000.partial/parameters.safetensors.partial", "half");
  import(folder_ / "source");
  EXPECT_FALSE(fs::exists(folder_ / "out/step-00000000.partial"));
  EXPECT_THAT(error_of([&] { import(folder_ / "source"); }),
              HasSubstr("holds a checkpoint already"));
  EXPECT_TRUE(verify_checkpoint(folder_ / "out/step-00000000").ok());
}

TEST_F(ImportTest, DamageIsFoundWhileWeightsAreWidened) {
  model().write();
  const SourceModel source(folder_ / "source");
  const fs::path checkpoint = source.import(folder_ / "out", "", false);
  const fs::path file = checkpoint / "parameters.safetensors";
  const std::string whole = read_file(file);
  put(file, flipped(whole, whole.size() - 1, 0));
  EXPECT_THAT(error_of([&] { load(checkpoint, source.config().model); }),
              HasSubstr("is damaged: the hash of its bytes"));
}

TEST_F(ImportTest, AnInterruptedImportLeavesNothing) {
  model().write();
  const InterruptGuard guard;
  std::raise(SIGINT);
  EXPECT_THAT(import_error(folder_ / "source"), HasSubstr("interrupted while importing"));
}

// ---- hostile folders

class HostileFolder : public ImportTest {
 protected:
  HostileFolder() : source_(model()), index_(source_.write_shards(3)) {}

  std::string error_with(const nlohmann::json& index) {
    source_.write_index(index);
    return import_error(source_.path());
  }

  HuggingFaceFolder source_;
  nlohmann::json index_;
};

TEST_F(HostileFolder, IndexesThatLeaveTheFolderAreRefused) {
  write_file(folder_ / "outside.safetensors", "x");
  for (const char* file : {"../outside.safetensors", "/etc/passwd", "..", "", "a/b.safetensors",
                           "model.bin", "./model-00001-of-00003.safetensors"}) {
    nlohmann::json index = index_;
    index["weight_map"]["model.norm.weight"] = file;
    EXPECT_THAT(error_with(index), HasSubstr("the file of tensor 'model.norm.weight' is")) << file;
  }
  nlohmann::json index = index_;
  index["weight_map"]["model.norm.weight"] = 5;
  EXPECT_THAT(error_with(index), HasSubstr("is 5; expected the plain name"));
}

TEST_F(HostileFolder, AMissingShardIsNamed) {
  fs::remove(source_.path() / "model-00002-of-00003.safetensors");
  EXPECT_THAT(import_error(source_.path()),
              HasSubstr("names the shard 'model-00002-of-00003.safetensors', which is missing"));
}

TEST_F(HostileFolder, IndexAndShardsMustAgreeBothWays) {
  nlohmann::json index = index_;
  index["weight_map"]["model.extra.weight"] = "model-00001-of-00003.safetensors";
  EXPECT_THAT(error_with(index), HasSubstr("says that tensor 'model.extra.weight' stands in"));
  index = index_;
  index["weight_map"].erase("model.norm.weight");
  EXPECT_THAT(error_with(index), HasSubstr("does not name tensor 'model.norm.weight'"));
  index = index_;
  const std::string place = index["weight_map"]["model.norm.weight"];
  const std::string other =
      HuggingFaceFolder::shard_name(place.ends_with("1-of-00003.safetensors") ? 1 : 0, 3);
  index["weight_map"]["model.norm.weight"] = other;
  EXPECT_THAT(error_with(index), HasSubstr("but it stands in " + place));
}

TEST_F(HostileFolder, ATensorInTwoShardsIsNamed) {
  auto names = source_.names();
  std::vector<std::string> first;
  for (const std::string& name : names) {
    if (index_["weight_map"][name] == "model-00001-of-00003.safetensors") first.push_back(name);
  }
  const std::string stray =
      index_["weight_map"]["model.norm.weight"] == "model-00001-of-00003.safetensors"
          ? "lm_head.weight"
          : "model.norm.weight";
  if (std::ranges::find(first, stray) == first.end()) first.push_back(stray);
  source_.write_file_of("model-00001-of-00003.safetensors", first);
  EXPECT_THAT(import_error(source_.path()), HasSubstr("the tensor '" + stray + "' stands in"));
}

TEST_F(HostileFolder, AForgottenShardIsNamed) {
  source_.write_file_of("model-00004-of-00004.safetensors", {"model.norm.weight"});
  EXPECT_THAT(import_error(source_.path()),
              HasSubstr("model-00004-of-00004.safetensors is not named by"));
}

TEST_F(HostileFolder, OddIndexesAreRefused) {
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {}}",
                           "{\"weight_map\": {\"a\": \"b.safetensors\", \"a\": \"c.safetensors\"}}",
                           "{\"weight_map\": {\"a\": {\"b\": {\"c\": {\"d\": 1}}}}}"}) {
    write_file(source_.path() / "model.safetensors.index.json", text);
    EXPECT_THAT(import_error(source_.path()), HasSubstr("model.safetensors.index.json")) << text;
  }
}

TEST_F(HostileFolder, AWrongTotalSizeIsSaid) {
  nlohmann::json index = index_;
  index["metadata"]["total_size"] = 1e300;
  source_.write_index(index);
  EXPECT_THAT(SourceModel(source_.path()).notes(),
              ElementsAre(HasSubstr("says a total_size of 1e+300 bytes")));
  index["metadata"]["total_size"] = index_["metadata"]["total_size"].get<double>();
  source_.write_index(index);
  EXPECT_THAT(SourceModel(source_.path()).notes(), ElementsAre());
}

TEST_F(HostileFolder, DamagedShardsAreNamed) {
  const fs::path path = source_.path() / "model-00002-of-00003.safetensors";
  const std::string whole = read_file(path);
  for (const size_t size :
       {size_t{0}, size_t{4}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    put(path, whole.substr(0, size));
    EXPECT_THAT(import_error(source_.path()), HasSubstr("model-00002-of-00003.safetensors"));
  }
}

TEST_F(ImportTest, FoldersWithoutAModelAreRefused) {
  EXPECT_THAT(error_of([&] { SourceModel source(folder_ / "nothing"); }), HasSubstr("config.json"));
  model().write();
  fs::remove(folder_ / "source/model.safetensors");
  EXPECT_THAT(error_of([&] { SourceModel source(folder_ / "source"); }),
              HasSubstr("holds no model.safetensors and no model.safetensors.index.json"));
  write_file(folder_ / "source/pytorch_model.bin", "x");
  EXPECT_THAT(error_of([&] { SourceModel source(folder_ / "source"); }),
              HasSubstr("save it as safetensors"));
}

}  // namespace
}  // namespace tessera::hugging_face
