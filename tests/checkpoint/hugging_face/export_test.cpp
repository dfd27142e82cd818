#include "checkpoint/hugging_face/export.h"

#include <csignal>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../sample.h"
#include "base/interrupt.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/model_folder.h"
#include "checkpoint/save.h"
#include "data/byte_tokenizer.h"
#include "model/model.h"
#include "support/error_of.h"
#include "support/hugging_face_folder.h"
#include "support/names_in.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HuggingFaceFolder;
using testing::names_in;
using testing::small_llama_config;
using testing::small_olmoe_config;

constexpr const char* kExported[] = {
    "olmo",    "olmoe", "llama",       "llama_tied",    "llama_rope_scaling",
    "mixtral", "zaya",  "zaya_untied", "zaya_ungrouped"};

/// Both folders hold the same tensors: names, types, shapes and bytes.
void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const WeightFolder first(a);
  const WeightFolder second(b);
  ASSERT_EQ(first.tensors().size(), second.tensors().size());
  for (const auto& [name, tensor] : first.tensors()) {
    const auto other = second.tensors().find(name);
    ASSERT_NE(other, second.tensors().end()) << name;
    EXPECT_EQ(other->second.entry->dtype, tensor.entry->dtype) << name;
    EXPECT_EQ(other->second.entry->shape, tensor.entry->shape) << name;
    EXPECT_TRUE(other->second.file->read(*other->second.entry) == tensor.file->read(*tensor.entry))
        << name;
  }
}

class ExportTest : public ::testing::Test {
 protected:
  struct Imported {
    ModelConfig model;
    fs::path checkpoint;
  };
  Imported import(const fs::path& source, const std::string& name) {
    const SourceModel opened(source);
    return {opened.config().model, opened.import(folder_ / name, "", false)};
  }
  ExportReport export_to(const std::string& name, const Imported& imported,
                         ExportOptions options = {}) {
    options.model = imported.model;
    options.max_context = imported.model.max_context;
    return export_checkpoint(CheckpointReader(imported.checkpoint), folder_ / name, options);
  }
  /// A checkpoint of f32 masters as training saves them, `value` in one element.
  Imported trained(float value = 0.5F, const std::vector<CarriedFile>& extra = {}) {
    return trained(read_config(small_olmoe_config().dump(), "config.json").model, value, extra);
  }
  Imported trained(const ModelConfig& model, float value = 0.5F,
                   const std::vector<CarriedFile>& extra = {}) {
    SampleTensors tensors;
    const ParameterList parameters = model_parameters(model, DType::f32);
    for (const ParameterSpec& spec : parameters.specs()) {
      tensors.add("parameters", spec.name, spec.shape, DType::f32);
    }
    tensors.add("optimizer", "step", {1}, DType::f32);
    tensors.fill(5);
    for (const NamedTensor& item : tensors.items()) {
      if (item.name == "layers.1.experts.gate") item.tensor.data<float>()[130] = value;
    }
    fs::remove_all(folder_ / "trained");
    return {model, save_checkpoint(folder_ / "trained", sample_state(7), tensors.items(), extra)};
  }

  TemporaryFolder folder_;
};

TEST_F(ExportTest, ImportAndExportGiveBackTheSameBytes) {
  for (const std::string name : kExported) {
    const fs::path source = fs::path(TESSERA_SOURCE) / "tests/fixtures/models" / name;
    const Imported imported = import(source, name);
    const ExportReport report = export_to(name + ".out", imported);
    EXPECT_EQ(report.files, 1);
    expect_same_tensors(source, folder_ / (name + ".out"));
    EXPECT_EQ(read_config(read_file(folder_ / (name + ".out") / "config.json"), "a").architecture,
              read_config(read_file(source / "config.json"), "b").architecture);
  }
}

TEST_F(ExportTest, FusedAndShardedExportsHoldTheSameModel) {
  for (const std::string name : {"olmoe", "mixtral"}) {
    const fs::path source = fs::path(TESSERA_SOURCE) / "tests/fixtures/models" / name;
    const Imported imported = import(source, name);
    const ExportReport fused =
        export_to(name + ".fused", imported, {.shard_bytes = 8000, .experts = ExpertNaming::fused});
    EXPECT_GT(fused.files, 3);
    const WeightFolder weights(folder_ / (name + ".fused"));
    EXPECT_TRUE(weights.notes().empty());
    EXPECT_TRUE(weights.tensors().contains("model.layers.0.mlp.experts.gate_up_proj"));
    EXPECT_TRUE(weights.tensors().contains("model.layers.0.mlp.gate.weight"));
    for (const auto& [tensor, place] : weights.tensors()) {
      EXPECT_LE(place.file->entries().size() == 1 ? 0 : place.file->entries().back().end, 8000);
    }
    const Imported again = import(folder_ / (name + ".fused"), name + ".again");
    export_to(name + ".single", again);
    expect_same_tensors(source, folder_ / (name + ".single"));
  }
}

/// transformers 5 checks that heads divide the hidden size; version 4 and Tessera do not.
TEST_F(ExportTest, SizesThatTheLibraryRefusesAreNoted) {
  nlohmann::json config = small_llama_config();
  config["hidden_size"] = 20;
  config["num_attention_heads"] = 3;
  config["num_key_value_heads"] = 3;
  config["head_dim"] = 8;
  const ModelConfig model = read_config(config.dump(), "config.json").model;
  EXPECT_THAT(export_to("odd", trained(model)).note,
              AllOf(HasSubstr("transformers 5 refuses a LlamaForCausalLM whose "
                              "num_attention_heads (3) does not divide its hidden_size (20)"),
                    HasSubstr("multiple of model.heads")));
  EXPECT_EQ(export_to("even", trained()).note, "");
}

TEST_F(ExportTest, EachTensorKeepsItsOwnTypeOrAllGetOne) {
  HuggingFaceFolder source(folder_ / "source", small_olmoe_config(), DType::bf16);
  source.add("model.norm.weight", {16}, DType::f32);
  source.write();
  const Imported imported = import(source.path(), "checkpoint");
  EXPECT_EQ(export_to("kept", imported).dtype, "bfloat16");
  expect_same_tensors(source.path(), folder_ / "kept");
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const std::string name = std::string(dtype_name(dtype));
    export_to(name, imported, {.dtype = dtype});
    const WeightFolder weights(folder_ / name);
    for (const auto& [tensor, place] : weights.tensors()) {
      const Tensor from = source.tensor(tensor);
      std::vector<std::byte> expected(static_cast<size_t>(from.elements() * dtype_size(dtype)));
      std::vector<float> wide(static_cast<size_t>(from.elements()));
      convert(from, Tensor::wrap(wide.data(), from.shape(), DType::f32));
      convert(Tensor::wrap(wide.data(), from.shape(), DType::f32),
              Tensor::wrap(expected.data(), from.shape(), dtype));
      EXPECT_TRUE(place.file->read(*place.entry) == expected) << tensor;
    }
  }
}

TEST_F(ExportTest, WhatAnElementTypeCannotHoldIsNamed) {
  const std::string at =
      "element 130 of 'layers.1.experts.gate' (tensor "
      "'model.layers.1.mlp.experts.1.gate_proj.weight' of the export) is ";
  EXPECT_THAT(error_of([&] { export_to("out", trained(65520.0F), {.dtype = DType::f16}); }),
              HasSubstr(at + "beyond the range of f16; export with --dtype bf16 or f32"));
  EXPECT_THAT(error_of([&] { export_to("out", trained(3.4e38F), {.dtype = DType::bf16}); }),
              HasSubstr(at + "beyond the range of bf16"));
  EXPECT_THAT(error_of([&] { export_to("out", trained(std::numeric_limits<float>::quiet_NaN())); }),
              HasSubstr(at + "NaN or infinite"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("trained")) << "something was left behind";
  export_to("out", trained(65519.0F), {.dtype = DType::f16});
}

TEST_F(ExportTest, ADamagedCheckpointIsNotExported) {
  const Imported checkpoint = trained();
  const fs::path file = checkpoint.checkpoint / "parameters.safetensors";
  const std::string whole = read_file(file);
  put(file, flipped(whole, whole.size() - 5, 3));
  EXPECT_THAT(error_of([&] { export_to("out", checkpoint, {.dtype = DType::bf16}); }),
              HasSubstr("is damaged: the hash"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(ExportTest, ParametersThatAreNotTheModelsAreNamed) {
  Imported checkpoint = trained();
  checkpoint.model.layers = 3;
  checkpoint.model.tied_head = true;
  checkpoint.model.expert_size = 4;
  const std::string message = error_of([&] { export_to("out", checkpoint); });
  EXPECT_THAT(message, HasSubstr("'layers.2.attention.query' is missing"));
  EXPECT_THAT(message, HasSubstr("'head.weight' has no place"));
  EXPECT_THAT(message, HasSubstr("'layers.0.experts.up' is f32 [3, 8, 16], expected [3, 4, 16]"));
}

TEST_F(ExportTest, TheFolderIsNewOrEmpty) {
  const Imported checkpoint = trained();
  fs::create_directories(folder_ / "out");
  export_to("out", checkpoint);
  EXPECT_THAT(names_in(folder_ / "out"),
              ElementsAre("config.json", "generation_config.json", "model.safetensors"));
  EXPECT_THAT(error_of([&] { export_to("out", checkpoint); }), HasSubstr("choose another"));
  write_file(folder_ / "file", "x");
  EXPECT_THAT(error_of([&] { export_to("file", checkpoint); }), HasSubstr("choose another"));
  // What an export that was killed left is no obstacle.
  write_file((ensure_directory(folder_ / "new.tessera-partial"), folder_ / "new.tessera-partial/x"),
             "x");
  export_to("new/", checkpoint);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("file", "new", "out", "trained"));
  EXPECT_FALSE(fs::exists(folder_ / "new/x"));
}

TEST_F(ExportTest, WhatAnotherExportWritesIsLeftAlone) {
  const Imported checkpoint = trained();
  const fs::path partial = folder_ / "out.tessera-partial";
  folder_.write("out.tessera-partial/model.safetensors.partial", "half");
  {
    const CheckpointLock other(partial);
    EXPECT_THAT(error_of([&] { export_to("out", checkpoint); }),
                HasSubstr("another export to " + (folder_ / "out").string() + " is going on"));
  }
  EXPECT_THAT(names_in(partial), ElementsAre("model.safetensors.partial"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(ExportTest, OfTwoExportsToOneFolderOneIsWritten) {
  const Imported checkpoint = trained();
  export_to("expected", checkpoint);
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(folder_ / "out");
    std::array<std::string, 2> errors;
    {
      std::vector<std::jthread> threads;
      for (std::string& error : errors) {
        threads.emplace_back([&] {
          try {
            export_to("out", checkpoint);
          } catch (const Error& refusal) {
            error = refusal.what();
          }
        });
      }
    }
    ASSERT_NE(errors[0].empty(), errors[1].empty()) << errors[0] << "\n" << errors[1];
    EXPECT_THAT(errors[0] + errors[1],
                AnyOf(HasSubstr("is going on"), HasSubstr("is there already")));
    expect_same_tensors(folder_ / "expected", folder_ / "out");
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("expected", "out", "trained"));
  }
}

TEST_F(ExportTest, OutputsThatNoFolderCanTakeAreRefusedBeforeAnythingIsWritten) {
  const Imported checkpoint = trained();
  const auto error = [&](const fs::path& output) {
    return error_of([&] { ModelFolder folder(output); });
  };
  EXPECT_THAT(error(""), HasSubstr("--output is empty"));
  fs::create_symlink("nowhere", folder_ / "dangling");
  for (const char* name : {"dangling", "dangling/"}) {
    EXPECT_THAT(error(folder_ / name), HasSubstr("is a link to nowhere, which is not there"));
  }
  EXPECT_THAT(error("/proc"), HasSubstr("choose another --output"));
  fs::create_directories(folder_ / "here");
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "here");
  for (const char* name : {".", "./", "../here"}) {
    EXPECT_THAT(error(name), HasSubstr("is the current folder")) << name;
  }
  fs::current_path(before);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("dangling", "here", "trained"));
  // A link to an empty folder stands for it.
  fs::create_directory_symlink("here", folder_ / "link");
  export_to("link", checkpoint);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(fs::exists(folder_ / "here/model.safetensors"));
}

TEST_F(ExportTest, AFolderThatLostAFileIsNotPublished) {
  ModelFolder folder(folder_ / "deep/out");
  write_file(folder.path() / "a", "12");
  const std::map<std::string, int64_t> longer{{"a", 3}};
  const std::map<std::string, int64_t> missing{{"a", 2}, {"b", 1}};
  EXPECT_THAT(error_of([&] { folder.publish(longer); }), HasSubstr("2 bytes, expected 3"));
  EXPECT_THAT(error_of([&] { folder.publish(missing); }), HasSubstr("was changed"));
  folder.publish({{"a", 2}});
  EXPECT_EQ(read_file(folder_ / "deep/out/a"), "12");
}

TEST_F(ExportTest, AnInterruptedExportLeavesNothing) {
  const Imported checkpoint = trained();
  const InterruptGuard guard;
  std::raise(SIGINT);
  EXPECT_THAT(error_of([&] { export_to("out", checkpoint); }),
              HasSubstr("interrupted while exporting"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("trained"));
}

TEST_F(ExportTest, TokenizerFilesAndTokenIdsComeAlong) {
  const std::vector<CarriedFile> files{{"tokenizer.model", "pieces"},
                                       {"generation_config.json", "{\"a\": 1}"}};
  ExportOptions options{.end_of_document = 2};
  EXPECT_THAT(export_to("out", trained(0, files), options).carried,
              ElementsAre("tokenizer.model", "generation_config.json"));
  EXPECT_EQ(read_file(folder_ / "out/tokenizer.model"), "pieces");
  const ExportReport without = export_to("without", trained(0, {files.back()}), options);
  EXPECT_THAT(without.carried, ElementsAre("generation_config.json"));
  EXPECT_FALSE(without.tokenizer);
  EXPECT_EQ(read_file(folder_ / "out/generation_config.json"), "{\"a\": 1}");
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "out/config.json"))["eos_token_id"], 2);
  // The byte tokenizer's file would make the library's loader fail.
  const TokenizerFile file = ByteTokenizer().files().front();
  const std::vector<CarriedFile> bytes{{file.name, file.content}};
  EXPECT_THAT(export_to("bytes", trained(0, bytes), {.end_of_document = 256}).carried,
              ElementsAre());
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "bytes/generation_config.json")),
            nlohmann::json({{"eos_token_id", 256}}));
}

}  // namespace
}  // namespace tessera::hugging_face
