#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/prepared_data.h"
#include "support/subprocess.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::Subprocess;

/// Corpora as people have them, by the program itself.
class DataCommandTest : public ::testing::Test {
 protected:
  struct Result {
    int status;
    std::string output;
  };
  Result run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TESSERA_PROGRAM);
    Subprocess process(std::move(arguments), folder_.path() / "output.txt");
    const int status = process.wait();
    return {status, process.output()};
  }
  nlohmann::json run_json(const std::vector<std::string>& arguments) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.output;
    return nlohmann::json::parse(result.output, nullptr, false);
  }
  std::string path(const char* name) const { return (folder_.path() / name).string(); }
  static std::string fixture(const char* name) {
    return (fs::path(TESSERA_SOURCE) / "tests/fixtures" / name).string();
  }

  TemporaryFolder folder_;
};

TEST_F(DataCommandTest, CompressedCorporaAreMixedWithTokenFilesTrainedAndEvaluated) {
  const Result prepared = run({"prepare", "--input", fixture("corpora/members.jsonl.gz"),
                               fixture("corpora/frames.jsonl.zst"), "--output", path("web"),
                               "--tokenizer", "bytes", "--context", "32", "--held-out", "0.1"});
  ASSERT_EQ(prepared.status, 0) << prepared.output;
  EXPECT_THAT(prepared.output, HasSubstr("120 documents"));

  testing::write_known_peak(folder_ / "hardware.json", testing::two_threads());
  std::string config = testing::small_config(folder_.path());
  const std::string directory = "directory = \"" + path("data") + "\"\n";
  config.erase(config.find(directory), directory.size());
  config += "[[data.sources]]\npath = \"" + path("web") +
            "\"\nweight = 3\n[[data.sources]]\npath = \"" + fixture("token_files/bare") +
            "\"\nheld_out = 0.2\n";
  write_file(folder_.path() / "mix.toml", config);
  const Result trained = run({"train", path("mix.toml"), "--quiet", "--set", "train.steps=12"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("web       1152"));
  EXPECT_THAT(trained.output, HasSubstr("bare       384"));

  const auto mixed = run_json({"eval", "--checkpoint", path("run"), "--json"});
  const double web = mixed["sources"]["web"]["loss"];
  const double bare = mixed["sources"]["bare"]["loss"];
  EXPECT_NEAR(mixed["loss"].get<double>(), (3 * web + bare) / 4, 1e-9);
  EXPECT_THAT(run({"eval", "--checkpoint", path("run")}).output,
              HasSubstr("this checkpoint, mean by weights"));
  const auto alone =
      run_json({"eval", "--checkpoint", path("run"), "--data", path("web"), "--json"});
  EXPECT_EQ(alone["loss"].get<double>(), web);
  EXPECT_FALSE(alone.contains("sources"));

  // Token files are taken whole.
  const auto megatron = run_json(
      {"eval", "--checkpoint", path("run"), "--data", fixture("token_files/bare.idx"), "--json"});
  EXPECT_EQ(megatron["instances"], 1116 / 32);
  const auto olmo = run_json({"eval", "--checkpoint", path("run"), "--data",
                              fixture("token_files/olmo-*.npy"), "--dtype", "uint16", "--json"});
  EXPECT_EQ(olmo["loss"], megatron["loss"]);
  const Result untyped =
      run({"eval", "--checkpoint", path("run"), "--data", fixture("token_files/olmo-*.npy")});
  EXPECT_EQ(untyped.status, 1);
  EXPECT_THAT(untyped.output, HasSubstr("set dtype to \"uint16\""));
  const Result baselines = run({"eval", "--checkpoint", path("run"), "--baselines"});
  EXPECT_EQ(baselines.status, 1);
  EXPECT_THAT(baselines.output, HasSubstr("the data is a mix of 2"));
}

/// Flips one bit of a file.
void flip_bit(const fs::path& path, size_t byte) {
  std::string bytes = read_file(path);
  bytes.at(byte) ^= 1;
  write_file(path, bytes);
}

TEST_F(DataCommandTest, FlippedDataAndTokenizersEndTheCommandsThatReadThem) {
  testing::prepare_small_data(folder_.path());
  write_file(folder_ / "config.toml", testing::small_config(folder_.path()));
  const auto train = [&](const char* directory) {
    return run({"train", path("config.toml"), "--quiet", "--set", "train.steps=12", "--set",
                std::string("run.directory=\"") + path(directory) + "\""});
  };
  ASSERT_EQ(train("run").status, 0);
  const auto expect_error = [](const Result& result, const std::string& file) {
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.output, HasSubstr(file + " is damaged"));
  };
  const auto with_flip = [&](const std::string& name, size_t byte, auto&& command) {
    flip_bit(path(name.c_str()), byte);
    expect_error(command(), path(name.c_str()));
    flip_bit(path(name.c_str()), byte);
  };
  const auto evaluate = [&] { return run({"eval", "--checkpoint", path("run")}); };
  with_flip("data/train-00000.npy", 1000, [&] { return train("other"); });
  with_flip("data/manifest.json", 400, [&] { return train("other"); });
  with_flip("data/held_out-00000.npy", 1000, evaluate);
  with_flip("data/train-00000.xxh3", 3, [&] { return train("other"); });

  // The same tokenizer in other bytes, which nothing but its hash can tell.
  const std::string questions =
      fs::path(folder_.write("task.jsonl",
                             "{\"context\": \"the\", \"choices\": [\" cat\", "
                             "\" dog\"], \"answer\": 0}\n"))
          .string();
  const std::string of_checkpoint =
      (fs::directory_iterator(folder_ / "run/checkpoints")->path() / "tokenizer.json").string();
  for (const std::string& tokenizer : {path("data/tokenizer.json"), of_checkpoint}) {
    write_file(tokenizer, "{\"kind\":\t\"bytes\"}\n");
  }
  expect_error(train("other"), path("data/tokenizer.json"));
  expect_error(evaluate(), of_checkpoint);
  expect_error(run({"eval", "--checkpoint", path("run"), "--tasks", questions}), of_checkpoint);
  expect_error(run({"generate", "--checkpoint", path("run"), "--prompt", "the", "--tokens", "2"}),
               of_checkpoint);
}

}  // namespace
}  // namespace tessera
