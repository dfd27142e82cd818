#include <cstdint>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/inspect.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

bool names(const VerifyReport& report, const std::string& tensor) {
  for (const VerifyFinding& finding : report.problems) {
    if (finding.tensor == tensor) return true;
  }
  return false;
}

class Damage : public ::testing::Test {
 protected:
  Damage() : path_(save_checkpoint(folder_ / "checkpoints", sample_state(7), tensors_.items())) {}

  std::string load_error() const {
    return error_of([&] {
      const CheckpointReader reader(path_);
      SampleTensors loaded = tensors_.empty_copy();
      load_all(reader, loaded.items());
    });
  }

  /// Changes the manifest's JSON and gives it the hash that belongs to it.
  void edit_manifest(const std::function<void(OrderedJson&)>& edit) const {
    OrderedJson json = OrderedJson::parse(read_file(path_ / "manifest.json"));
    json.erase("xxh3");
    edit(json);
    const std::string body = json.dump(1).substr(2) + "\n";
    put(path_ / "manifest.json", "{\n \"xxh3\": \"" + hash_text(hash(body)) + "\",\n" + body);
  }

  TemporaryFolder folder_;
  SampleTensors tensors_ = sample_tensors();
  fs::path path_;
};

TEST_F(Damage, EveryBitOfEveryTensorIsGuardedAndNamed) {
  const CheckpointManifest manifest = read_checkpoint_manifest(path_);
  for (const CheckpointFile& file : manifest.tensor_files) {
    const std::string whole = read_file(path_ / file.name);
    struct Range {
      size_t begin, end;
      std::string label;
    };
    std::vector<Range> ranges;
    {
      const SafetensorsReader reader(path_ / file.name);
      for (const SafetensorsEntry& entry : reader.entries()) {
        const auto start = static_cast<size_t>(reader.header_bytes());
        const std::string group = file.name.substr(0, file.name.find('.'));
        ranges.push_back({start + static_cast<size_t>(entry.begin),
                          start + static_cast<size_t>(entry.end), group + "/" + entry.name});
      }
    }
    for (const Range& range : ranges) {
      for (size_t byte = range.begin; byte < range.end; ++byte) {
        put(path_ / file.name, flipped(whole, byte, static_cast<int>(byte % 8)));
        const VerifyReport report = verify_checkpoint(path_);
        ASSERT_EQ(report.problems.size(), 1);
        ASSERT_EQ(report.problems[0].tensor, range.label);
        ASSERT_EQ(report.problems[0].file, file.name);
        const std::string message = load_error();
        ASSERT_THAT(message, HasSubstr("'" + range.label + "' is damaged"));
        ASSERT_THAT(message, HasSubstr(file.name));
      }
    }
    put(path_ / file.name, whole);
  }
  EXPECT_TRUE(verify_checkpoint(path_).ok());
}

TEST_F(Damage, EveryFlippedByteOfAnyOtherFileIsFound) {
  const auto header =
      static_cast<size_t>(SafetensorsReader(path_ / "router.safetensors").header_bytes());
  for (const std::string name : {"manifest.json", "config.toml", "router.safetensors"}) {
    const std::string whole = read_file(path_ / name);
    const size_t end = name == "router.safetensors" ? header : whole.size();
    for (size_t byte = 0; byte < end; ++byte) {
      put(path_ / name, flipped(whole, byte, static_cast<int>(byte % 8)));
      ASSERT_FALSE(verify_checkpoint(path_).ok()) << name << " byte " << byte;
      ASSERT_NE(load_error(), "");
    }
    put(path_ / name, whole);
  }
}

TEST_F(Damage, RandomDamageIsAlwaysReportedAndNeverCrashes) {
  const std::vector<std::string> files{"manifest.json", "config.toml", "optimizer.safetensors",
                                       "parameters.safetensors", "router.safetensors"};
  const CounterRandom random(11, "damage");
  uint64_t draw = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string& name = files[random.bits(draw++) % files.size()];
    const std::string whole = read_file(path_ / name);
    std::string damaged = whole;
    const uint64_t kind = random.bits(draw++) % 4;
    const size_t at = random.bits(draw++) % whole.size();
    if (kind == 0) damaged.resize(at);
    if (kind == 1) damaged += whole.substr(at);
    if (kind == 2) damaged.replace(at, 8, random.bits(draw++) % 9, 'x');
    if (kind == 3) {
      for (int i = 0; i < 5; ++i) {
        damaged[random.bits(draw) % whole.size()] = static_cast<char>(random.bits(draw + 1));
        draw += 2;
      }
    }
    if (damaged == whole) continue;
    put(path_ / name, damaged);
    ASSERT_FALSE(verify_checkpoint(path_).ok()) << name << " round " << round;
    ASSERT_NE(load_error(), "");
    put(path_ / name, whole);
  }
}

TEST_F(Damage, MissingFilesAndStrangers) {
  put(path_ / "notes.txt", "x");
  VerifyReport report = verify_checkpoint(path_);
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.warnings.size(), 1);
  EXPECT_EQ(report.warnings[0].file, "notes.txt");

  fs::remove(path_ / "router.safetensors");
  fs::remove(path_ / "config.toml");
  report = verify_checkpoint(path_);
  EXPECT_TRUE(names(report, "router/codes"));
  EXPECT_FALSE(names(report, "parameters/norm"));
  EXPECT_THAT(report.text(), HasSubstr("config.toml"));
  EXPECT_THAT(report.text(), HasSubstr("tensor 'router/codes' cannot be checked"));
  EXPECT_THAT(load_error(), HasSubstr("router.safetensors is missing"));
}

TEST_F(Damage, AFileOfAnotherCheckpointIsNotAccepted) {
  const fs::path other =
      save_checkpoint(folder_ / "other", sample_state(8), sample_tensors(9).items());
  fs::copy_file(other / "parameters.safetensors", path_ / "parameters.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(names(verify_checkpoint(path_), "parameters/norm"));
  EXPECT_THAT(load_error(), HasSubstr("parameters.safetensors"));
}

// A mapping would end the process with SIGBUS here.
TEST_F(Damage, AFileThatIsCutWhileItIsReadIsAnErrorThatNamesIt) {
  const CheckpointReader reader(path_);
  SampleTensors loaded = tensors_.empty_copy();
  const fs::path file = path_ / "optimizer.safetensors";
  const CheckpointTensor* last = reader.find("optimizer", "embedding");
  ASSERT_NE(last, nullptr);
  reader.check(*last);  // it is open now
  fs::resize_file(file, fs::file_size(file) - static_cast<uintmax_t>(last->bytes()));
  const auto expect_named = [&](const std::string& message) {
    EXPECT_THAT(message, HasSubstr(file.string()));
    EXPECT_THAT(message, HasSubstr("was cut short"));
  };
  expect_named(error_of([&] { load_all(reader, loaded.items()); }));
  expect_named(error_of([&] { reader.check(*last); }));
  EXPECT_THROW(reader.check(*last), DamagedCheckpoint);
  EXPECT_FALSE(verify_checkpoint(path_).ok());
}

TEST_F(Damage, AnotherCheckpointUnderItsNameIsNotAccepted) {
  save_checkpoint(folder_ / "checkpoints", sample_state(6), tensors_.items());
  fs::remove_all(path_);
  fs::rename(folder_ / "checkpoints/step-00000006", path_);
  for (const fs::path& named : {path_, path_ / "", path_ / "../step-00000007"}) {
    EXPECT_THAT(verify_checkpoint(named).text(), HasSubstr("holds the checkpoint of step 6"));
    EXPECT_FALSE(verify_checkpoint(named).ok());
    EXPECT_THAT(error_of([&] { find_checkpoint(named); }), HasSubstr("checkpoint of step 6"));
  }
  // Any other name says nothing.
  fs::rename(path_, folder_ / "best");
  EXPECT_TRUE(verify_checkpoint(folder_ / "best").ok());
  EXPECT_EQ(find_checkpoint(folder_ / "best").path, folder_ / "best");
  for (const char* unfinished : {"step-00000006.partial", "step-00000006.deleted"}) {
    fs::rename(folder_ / "best", folder_ / unfinished);
    EXPECT_THAT(verify_checkpoint(folder_ / unfinished).text(), HasSubstr("does not count"));
    EXPECT_THAT(error_of([&] { find_checkpoint(folder_ / unfinished); }),
                HasSubstr("does not count"));
    fs::rename(folder_ / unfinished, folder_ / "best");
  }
}

TEST_F(Damage, TheNewestSpeaksForItsFolderAndBrokenOnesAreNamed) {
  const fs::path directory = folder_ / "checkpoints";
  const auto save = [&](int64_t step) {
    return save_checkpoint(directory, sample_state(step), tensors_.items());
  };
  save(6);
  const fs::path newest = save(8);
  fs::create_directory(directory / "step-00000009.partial");
  VerifyReport report = verify_newest(directory);
  EXPECT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(report.checkpoint, newest);
  EXPECT_THAT(report.text(), HasSubstr("step-00000009.partial: is being written"));
  // An older one that is broken: the newest is sound, the run is not.
  fs::remove(path_ / "router.safetensors");
  report = verify_newest(directory);
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(report.text(), HasSubstr("step-00000008 is complete and undamaged"));
  EXPECT_THAT(report.text(), HasSubstr("step-00000007 is broken: "));
  EXPECT_EQ(OrderedJson::parse(report.json()).at("others_broken").size(), 1);
  // The newest is broken: none older speaks for it.
  fs::remove(newest / "manifest.json");
  report = verify_newest(directory);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.checkpoint, newest);
  EXPECT_EQ(report.other_complete, directory / "step-00000006");
  EXPECT_THAT(report.text(), HasSubstr("the newest complete one beside it is"));
  EXPECT_THAT(error_of([&] { verify_newest(folder_ / "none"); }), HasSubstr("neither"));
}

TEST_F(Damage, NaNAndInfinityAreWarnings) {
  SampleTensors tensors;
  const Tensor narrow = tensors.add("parameters", "narrow", {5}, DType::bf16);
  const Tensor wide = tensors.add("parameters", "wide", {3}, DType::f64);
  tensors.add("parameters", "integers", {3}, DType::i32);
  tensors.fill(1);
  narrow.data<BFloat16>()[1].bits = 0x7fc0;
  narrow.data<BFloat16>()[2].bits = 0xff80;
  narrow.data<BFloat16>()[3].bits = 0x7f80;
  wide.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  const fs::path path = save_checkpoint(folder_ / "nan", sample_state(1), tensors.items());
  const VerifyReport report = verify_checkpoint(path, 2);
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.warnings.size(), 2);
  EXPECT_EQ(report.warnings[0].tensor, "parameters/narrow");
  EXPECT_EQ(report.warnings[0].message, "has 1 NaN and 2 infinite of 5 elements");
  EXPECT_EQ(report.warnings[1].message, "has 1 NaN and 0 infinite of 3 elements");
}

TEST_F(Damage, ReportsReadWell) {
  const OrderedJson good = OrderedJson::parse(verify_checkpoint(path_).json());
  EXPECT_EQ(good.at("ok"), true);
  EXPECT_EQ(good.at("step"), 7);
  EXPECT_EQ(good.at("tensors"), 10);
  EXPECT_THAT(verify_checkpoint(path_).text(),
              HasSubstr("complete and undamaged: step 7, 10 tens"));
  const std::string whole = read_file(path_ / "parameters.safetensors");
  put(path_ / "parameters.safetensors", flipped(whole, whole.size() - 1, 0));
  const OrderedJson bad = OrderedJson::parse(verify_checkpoint(path_).json());
  EXPECT_EQ(bad.at("ok"), false);
  EXPECT_EQ(bad.at("problems").size(), 1);
  EXPECT_THAT(bad.at("problems")[0].at("message").get<std::string>(), HasSubstr("is damaged"));
  EXPECT_THAT(error_of([&] { verify_checkpoint(folder_ / "absent"); }), HasSubstr("not a folder"));
  fs::remove(path_ / "manifest.json");
  EXPECT_THAT(verify_checkpoint(path_).text(), HasSubstr("it has no manifest.json"));
}

TEST_F(Damage, HostileManifestsAreRefusedWithTheirReason) {
  const std::vector<std::pair<std::function<void(OrderedJson&)>, std::string>> cases{
      {[](OrderedJson& m) { m["format"] = "other"; }, "its format is not"},
      {[](OrderedJson& m) { m["version"] = 3; }, "format version 3, expected at most 2"},
      {[](OrderedJson& m) { m["version"] = "1"; }, "'version' is not a count"},
      {[](OrderedJson& m) { m.erase("step"); }, "'step' is missing"},
      {[](OrderedJson& m) { m["step"] = -1; }, "'step' is not a count"},
      {[](OrderedJson& m) { m["step"] = 1.5; }, "'step' is not a count"},
      {[](OrderedJson& m) { m["step"] = UINT64_MAX; }, "'step' is 18446744073709551615"},
      {[](OrderedJson& m) { m["state"] = 5; }, "'state' is not an object"},
      {[](OrderedJson& m) { m["state"]["x"] = nullptr; }, "'x' is neither a number nor a text"},
      {[](OrderedJson& m) {
         m["state"]["x"] = {{"real", "many"}};
       },
       "'x' is neither"},
      {[](OrderedJson& m) { m["state"]["x"] = UINT64_MAX; }, "18446744073709551615"},
      {[](OrderedJson& m) { m["state"]["x"] = OrderedJson::parse("[[[[[[1]]]]]]"); },
       "nested deeper"},
      {[](OrderedJson& m) { m["tensors"] = 1; }, "'tensors' is not a list"},
      {[](OrderedJson& m) { m["tensors"][0] = 1; }, "not an object"},
      {[](OrderedJson& m) { m["tensors"][0].erase("group"); }, "'group' is missing"},
      {[](OrderedJson& m) { m["tensors"][0]["dtype"] = "f99"; }, "unknown element type 'f99'"},
      {[](OrderedJson& m) {
         m["tensors"][0]["shape"] = {1, -1};
       },
       "'shape' is -1"},
      {[](OrderedJson& m) { m["tensors"][0]["shape"] = {1, 1, 1, 1, 1, 1}; }, "6 dims"},
      {[](OrderedJson& m) {
         m["tensors"][0]["shape"] = {INT64_MAX, 2};
       },
       "exceeds 2^63 bytes"},
      {[](OrderedJson& m) {
         m["tensors"][0]["shape"] = {INT64_MAX / 4};
         m["tensors"][0]["pieces"][0]["region"] = {{0, INT64_MAX / 4}};
         m["block_bytes"] = INT64_MAX - 7;
         m["tensors"][1]["shape"] = {INT64_MAX / 2};
       },
       "exceeds 2^63 bytes"},
      {[](OrderedJson& m) {
         m["tensors"][0]["shape"] = {7, 5};
       },
       "fewer elements of [7, 5]"},
      {[](OrderedJson& m) { m["tensors"][0]["shape"] = {28}; }, "dim 1, which is not within [28]"},
      {[](OrderedJson& m) {
         m["tensors"][0]["shape"] = {4, 7};
         m["tensors"][0]["pieces"][0]["region"] = {{0, 4}, {0, 7}};
       },
       "another type or shape"},
      {[](OrderedJson& m) { m["tensors"][0]["pieces"].clear(); }, "fewer elements of [7, 4]"},
      {[](OrderedJson& m) {
         m["tensors"][0]["pieces"][0]["region"][0] = {0, 8};
       },
       "has 0:8 of its dim 0"},
      {[](OrderedJson& m) {
         m["tensors"][0]["pieces"][0]["region"][0] = {3, 2};
       },
       "has 3:2"},
      {[](OrderedJson& m) { m["tensors"][0]["pieces"][0]["region"][0] = 7; }, "no pairs"},
      {[](OrderedJson& m) { m["tensors"][0]["pieces"][0]["region"].erase(1); },
       "has 1 dims of [7, 4]"},
      {[](OrderedJson& m) {
         OrderedJson& pieces = m["tensors"][0]["pieces"];
         pieces.push_back(pieces[0]);
         pieces[0]["region"][0] = {0, 4};
         pieces[1]["region"][0] = {3, 6};
       },
       "its regions [0:4, 0:4] and [3:6, 0:4] overlap"},
      {[](OrderedJson& m) { m["block_bytes"] = 12; }, "a multiple of 8"},
      {[](OrderedJson& m) { m["block_bytes"] = 0; }, "a multiple of 8"},
      {[](OrderedJson& m) { m["block_bytes"] = 8; }, "has 1 hashes for a piece of 56 bytes"},
      {[](OrderedJson& m) {
         OrderedJson& hash = m["tensors"][0]["pieces"][0]["xxh3"];
         hash = hash.get<std::string>() + " ";
       },
       "expected 16 hexadecimal digits"},
      {[](OrderedJson& m) { m["tensors"][0]["name"] = "x"; },
       "'parameters/x' its file's header does not name it"},
      {[](OrderedJson& m) { m["tensors"][0]["pieces"][0]["xxh3"] = "12"; },
       "expected 16 hexadecimal digits"},
      {[](OrderedJson& m) { m["tensors"][0]["pieces"][0]["file"] = "x.safetensors"; },
       "which is none of its files"},
      {[](OrderedJson& m) { m["tensors"].push_back(m["tensors"][0]); },
       "'parameters/embedding' twice"},
      {[](OrderedJson& m) { m["tensors"].erase(0); },
       "parameters.safetensors: tensor 'embedding' is not in the manifest"},
      {[](OrderedJson& m) { m["tensor_files"][0]["name"] = "../parameters.safetensors"; },
       "plain name"},
      {[](OrderedJson& m) { m["tensor_files"][0]["name"] = "/etc/passwd"; }, "plain name"},
      {[](OrderedJson& m) { m["extra_files"][0]["name"] = ".."; }, "plain name"},
      {[](OrderedJson& m) { m["extra_files"][0]["name"] = std::string("a\0b", 3); }, "plain name"},
      {[](OrderedJson& m) { m["extra_files"][0]["name"] = "manifest.json"; },
       "'manifest.json' twice"},
      {[](OrderedJson& m) { m["tensor_files"][0]["bytes"] = 1; }, " bytes, expected 1;"},
      {[](OrderedJson& m) { m["extra_files"][0]["bytes"] = 1; }, " bytes, expected 1;"},
      {[](OrderedJson& m) { m["extra_files"][0]["xxh3"] = "0123456789abcdef"; },
       "config.toml is damaged"},
  };
  const std::string whole = read_file(path_ / "manifest.json");
  for (const auto& [edit, message] : cases) {
    edit_manifest(edit);
    EXPECT_NE(read_file(path_ / "manifest.json"), whole) << message;
    // What differs from the model is an error before any file is opened: verify opens it.
    EXPECT_THAT(load_error() + verify_checkpoint(path_).text(), HasSubstr(message));
    EXPECT_NE(load_error(), "");
    EXPECT_FALSE(verify_checkpoint(path_).ok()) << message;
    put(path_ / "manifest.json", whole);
  }
  edit_manifest([](OrderedJson&) {});
  EXPECT_EQ(read_file(path_ / "manifest.json"), whole);
  for (const std::string text : {"", "{}", "null", "{\n \"xxh3\": \"0123456789abcdef\",\n"}) {
    put(path_ / "manifest.json", text);
    EXPECT_THAT(load_error(), HasSubstr("damaged")) << text;
  }
  put(path_ / "manifest.json", whole.substr(0, 32) + " " + whole.substr(32));
  EXPECT_THAT(load_error(), HasSubstr("was edited"));
}

TEST_F(Damage, InspectShowsWhatIsThere) {
  const std::string text = inspect_checkpoint(path_);
  EXPECT_THAT(text, HasSubstr("step-00000007"));
  EXPECT_THAT(text, HasSubstr("123456789012345"));
  EXPECT_THAT(text, HasSubstr("layers.0.attention.query"));
  EXPECT_THAT(text, HasSubstr("[3, 1, 2]"));
  const OrderedJson json = OrderedJson::parse(inspect_checkpoint_json(path_));
  EXPECT_EQ(json.at("step"), 7);
  EXPECT_EQ(json.at("state").at("loss_scale"), 0.1);
  ASSERT_EQ(json.at("tensors").size(), 10);
  EXPECT_EQ(json.at("tensors")[1].at("name"), "layers.0.attention.query");
  EXPECT_EQ(json.at("tensors")[1].at("shape"), OrderedJson({4, 3}));
  EXPECT_EQ(json.at("tensors")[1].at("bytes"), 24);
  const OrderedJson& piece = json.at("tensors")[1].at("pieces")[0];
  EXPECT_EQ(piece.at("file"), "parameters.safetensors");
  EXPECT_EQ(piece.at("region"), OrderedJson({{0, 4}, {0, 3}}));
  EXPECT_EQ(piece.at("xxh3"),
            OrderedJson({hash_text(hash({tensors_.items()[1].tensor.raw(), 24}))}));
  ASSERT_EQ(json.at("groups").size(), 3);
  EXPECT_EQ(json.at("groups")[0].at("elements"), 7 * 4 + 4 * 3 + 5);
  put(path_ / "manifest.json", "{}");
  EXPECT_THAT(error_of([&] { inspect_checkpoint(path_); }), HasSubstr("damaged"));
}

}  // namespace
}  // namespace tessera
