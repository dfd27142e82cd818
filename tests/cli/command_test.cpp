#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "cli/program.h"
#include "hardware/hardware_file.h"
#include "metrics/metrics.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Subprocess;
using Result = testing::ProgramResult;

/// The program itself, end to end, in a folder of its own.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_.path() / "text.txt", testing::small_text(600));
    write_file(config_path(), testing::small_config(folder_.path()));
    testing::write_known_peak(folder_ / "hardware.json", testing::two_threads());
  }

  fs::path config_path() const { return folder_.path() / "config.toml"; }
  std::string path(const char* name) const { return (folder_.path() / name).string(); }

  std::unique_ptr<Subprocess> start(std::vector<std::string> arguments) const {
    return testing::start_program(folder_, std::move(arguments));
  }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  void prepare() {
    const Result result = run({"prepare", "--input", path("text.txt"), "--output", path("data"),
                               "--tokenizer", "bytes", "--context", "32", "--held-out", "0.05"});
    ASSERT_EQ(result.status, 0) << result.output;
  }
  std::vector<std::string> train(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", config_path().string(), "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// The hashes of all tensors of a run's newest checkpoint.
  std::vector<std::string> hashes(const char* run_name) {
    const Result result = run({"checkpoint", "inspect", path(run_name), "--json"});
    EXPECT_EQ(result.status, 0) << result.output;
    const auto inspected = nlohmann::json::parse(result.output);
    std::vector<std::string> hashes;
    for (const auto& tensor : inspected["tensors"]) {
      hashes.push_back(tensor["name"].get<std::string>() + tensor["pieces"].dump());
    }
    EXPECT_GT(hashes.size(), 10U);
    return hashes;
  }

  /// The steps and losses of a run, as its metrics.csv has them.
  std::vector<std::string> losses(const char* run_name) {
    std::istringstream lines(read_file(folder_.path() / run_name / "metrics.csv"));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) {
      result.push_back(line.substr(0, line.find(',', line.find(',') + 1)));
    }
    return result;
  }

  TemporaryFolder folder_;
};

TEST_F(CommandTest, EveryCommandHasHelp) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"prepare", "--help"},
                                             {"train", "--help"},
                                             {"eval", "--help"},
                                             {"generate", "--help"},
                                             {"explain", "--help"},
                                             {"plot", "--help"},
                                             {"checkpoint", "--help"},
                                             {"checkpoint", "inspect", "--help"},
                                             {"checkpoint", "verify", "--help"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("Usage:"));
  }
  EXPECT_THAT(run({"train", "--help"}).output, HasSubstr("experts_per_token"));
}

TEST_F(CommandTest, AnUnreadableCommandLineIsALineThatSaysWhereHelpIs) {
  for (const auto& [arguments, help] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"train"}, "see tessera train --help\n"},
           {{"train", "x.toml", "--ranks", "0"}, "see tessera train --help\n"},
           {{"checkpoint", "verify"}, "see tessera checkpoint verify --help\n"},
           {{"checkpoint"}, "see tessera checkpoint --help\n"},
           {{"trian"}, "see tessera --help\n"},
           {{}, "see tessera --help\n"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, ::testing::StartsWith("tessera: error: "));
    EXPECT_THAT(result.output, ::testing::EndsWith(help));
    EXPECT_EQ(std::ranges::count(result.output, '\n'), 1) << result.output;
  }
}

TEST_F(CommandTest, ValuesArriveAsTheyWereTyped) {
  const std::string folder = (folder_ / "typed").string();
  for (const char* name : {"[x]", "x", "[a,b]", "a,b]"}) {
    folder_.write(fmt::format("typed/{}/text.txt", name), fmt::format("the text of {}\n", name));
  }
  const auto in_folder = [&](std::vector<std::string> arguments) {
    std::string line = "cd '" + folder + "'; exec '" TESSERA_PROGRAM "'";
    for (const std::string& argument : arguments) line += " '" + argument + "'";
    testing::Subprocess process({"/bin/sh", "-c", line}, folder_.path() / "typed.txt");
    const int status = process.wait();
    return testing::ProgramResult{status, process.output()};
  };
  const auto prepared = in_folder({"prepare", "--output", "out", "--tokenizer", "bytes",
                                   "--context", "4", "--input=[x]", "--input", "[a,b]", "a,b]"});
  ASSERT_EQ(prepared.status, 0) << prepared.output;
  std::vector<std::string> inputs;
  const auto manifest = nlohmann::json::parse(read_file(folder_ / "typed/out/manifest.json"));
  for (const auto& file : manifest["recipe"]["inputs"]) {
    inputs.push_back(fs::path(file["path"].get<std::string>()).parent_path().filename());
  }
  EXPECT_THAT(inputs, ::testing::ElementsAre("[x]", "[a,b]", "a,b]"));
  // A positional argument, and what no command takes.
  EXPECT_THAT(in_folder({"plot", "[none,b]"}).output, HasSubstr("[none,b]"));
  EXPECT_THAT(in_folder({"explain", "x.toml", "[y]", "z"}).output,
              HasSubstr("not expected: [y] z"));
}

TEST_F(CommandTest, ThatDoesNotExistIsNamed) {
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2);
    return result.output;
  };
  EXPECT_THAT(refusal({"trian", "x.toml"}),
              HasSubstr("there is no command 'trian'; did you mean 'train'?; see tessera --help"));
  EXPECT_THAT(refusal({"bogus"}), HasSubstr("there is no command 'bogus'; there are prepare, "));
  EXPECT_THAT(refusal({"checkpoint", "import]"}),
              HasSubstr("there is no command 'import]'; did you mean 'import'?; see tessera "
                        "checkpoint --help"));
  for (const std::vector<std::string>& option : {std::vector<std::string>{"--verison"},
                                                 {"--verison", "plot", "x"},
                                                 {"--verison", "2", "x"}}) {
    EXPECT_THAT(refusal(option), HasSubstr("--verison"));
  }
  EXPECT_THAT(refusal({"--verison"}), HasSubstr("expected a command first: prepare, "));
  EXPECT_THAT(refusal({}), HasSubstr("A subcommand is required"));
}

TEST_F(CommandTest, TheWholeWayFromTextToText) {
  prepare();
  EXPECT_EQ(run(train()).status, 0);
  for (const char* file : {"run/config.toml", "run/metrics.jsonl", "run/loss.svg"}) {
    EXPECT_TRUE(fs::exists(path(file))) << file;
  }
  const Result evaluated =
      run({"eval", "--checkpoint", path("run"), "--data", path("data"), "--baselines", "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  const auto json = nlohmann::json::parse(evaluated.output);
  EXPECT_LT(json["loss"], json["unigram_loss"]);
  EXPECT_LT(json["loss"], json["bigram_loss"]);
  EXPECT_EQ(json["tokens"], json["baseline_tokens"]);
  EXPECT_EQ(json["step"], 200);

  const Result generated = run({"generate", "--checkpoint", path("run"), "--prompt", "the old ",
                                "--tokens", "8", "--temperature", "0", "--json"});
  ASSERT_EQ(generated.status, 0) << generated.output;
  EXPECT_THAT(nlohmann::json::parse(generated.output)["text"].get<std::string>(),
              HasSubstr("king"));

  const Result verified = run({"checkpoint", "verify", path("run")});
  EXPECT_EQ(verified.status, 0) << verified.output;
}

TEST_F(CommandTest, AnEvaluationTakesTheRanksAndTheirLayout) {
  prepare();
  ASSERT_EQ(run(train({"--set", "train.steps=10", "--set", "train.precision=\"fp32\"", "--set",
                       "model.vocabulary_size=260"}))
                .status,
            0);
  const auto evaluate = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"eval", "--checkpoint", path("run"), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const auto loss = [&](const std::vector<std::string>& more) {
    const Result result = evaluate(more);
    EXPECT_EQ(result.status, 0) << result.output;
    return nlohmann::json::parse(result.output)["loss"].get<double>();
  };
  const double one = loss({});
  write_file(path("layout.toml"),
             testing::small_config(folder_.path()) + "[parallel]\ntensor = 2\nexpert = 4\n");
  EXPECT_NEAR(loss({"--ranks", "4", "--config", path("layout.toml")}), one, 1e-5);
  EXPECT_NEAR(loss({"--ranks", "2", "--set", "parallel.tensor=2"}), one, 1e-5);
  EXPECT_NEAR(loss({"--ranks", "4", "--config", path("layout.toml"), "--set", "parallel.tensor=1"}),
              one, 1e-5);
  // In stages. The model of layout.toml has other layers, and does not count.
  write_file(path("stages.toml"), "[model]\nlayers = 1\n[parallel]\npipeline = 2\n");
  EXPECT_EQ(loss({"--ranks", "2", "--config", path("stages.toml")}), one);
  EXPECT_EQ(loss({"--set", "parallel.virtual_stages=2", "--set", "parallel.stage_layers=[0, 2]"}),
            one);
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Result result = evaluate(more);
    EXPECT_EQ(result.status, 1);
    return result.output;
  };
  EXPECT_THAT(refusal({"--ranks", "3", "--set", "parallel.pipeline=3"}),
              HasSubstr("is 3 chunks, too many for model.layers (2)"));
  EXPECT_THAT(refusal({"--ranks", "3", "--config", path("layout.toml")}),
              HasSubstr("does not divide --ranks (3)"));
  EXPECT_THAT(refusal({"--set", "train.steps=3"}),
              HasSubstr("--set train.steps=3: an evaluation takes keys of [parallel] only"));
}

TEST_F(CommandTest, AFileAboveTheUsersLimitIsAnErrorThatNamesIt) {
  Subprocess shell(
      {"/bin/sh", "-c",
       "ulimit -f 8; exec \"$0\" prepare --input \"$1\" --output \"$2\" --tokenizer bytes "
       "--context 32",
       TESSERA_PROGRAM, path("text.txt"), path("data")},
      folder_.path() / "output.txt");
  EXPECT_EQ(shell.wait(), 1);
  EXPECT_THAT(shell.output(), ::testing::AllOf(HasSubstr(path("data")), HasSubstr("too large")));
}

TEST_F(CommandTest, ExplainCountsWhatTheConfigurationSays) {
  const Result result =
      run({"explain", config_path().string(), "--set", "model.vocabulary_size=257", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const auto totals = nlohmann::json::parse(result.output)["totals"];
  // Embedding and head, then for each of two layers: attention and its norms, router, experts, two
  // norms; and the last norm.
  const int64_t attention = 4 * 32 * 32 + 2 * 32;
  const int64_t experts = 3 * 32 * 16;
  const int64_t shared = 2 * 257 * 32 + 2 * (attention + 4 * 32 + 2 * 32) + 32;
  EXPECT_EQ(totals["parameters"], shared + 2 * 4 * experts);
  EXPECT_EQ(totals["active_parameters"], shared + 2 * 2 * experts);
  // Matrix products forward: 2 FLOPs a weight that a token meets (not the embedding's), and
  // attention's scores and values over half of the sequence.
  const double weights = 257 * 32 + 2 * (4 * 32 * 32 + 4 * 32 + 2 * experts);
  const double attended = 2 * 2.0 * 2 * 32 * (32 + 1) / 2;
  EXPECT_DOUBLE_EQ(totals["forward_flops_per_token"], 2 * weights + attended);
  EXPECT_DOUBLE_EQ(totals["backward_flops_per_token"], 2 * (2 * weights + attended));

  const Result table = run({"explain", config_path().string(), "--set", "model.vocabulary_size=257",
                            "--set", "train.recompute=[\"experts\"]"});
  EXPECT_EQ(table.status, 0);
  for (const char* word :
       {"linear_cross_entropy", "recomputed", "saved", "peak memory", "parameters"}) {
    EXPECT_THAT(table.output, HasSubstr(word));
  }
}

TEST_F(CommandTest, ExplainPlansForDevicesThatAreNotHere) {
  for (const char* const device : {"emulated", "cuda", "hip"}) {
    const Result result =
        run({"explain", config_path().string(), "--set", "model.vocabulary_size=256", "--set",
             std::string("run.device=\"") + device + "\"", "--json"});
    ASSERT_EQ(result.status, 0) << device << ": " << result.output;
    EXPECT_GT(nlohmann::json::parse(result.output)["totals"]["peak_bytes"], 0) << device;
  }
}

TEST_F(CommandTest, ExplainForAnotherMachineNeedsItsHardwareFileAlone) {
  const std::vector<std::string> explain{"explain", config_path().string(), "--set",
                                         "model.vocabulary_size=257"};
  const auto explained = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = explain;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  };
  // This machine's own file says what this machine says.
  Hardware hardware{this_processor(2), {}, {}};
  write_file(path("here.json"), hardware_json(hardware));
  EXPECT_EQ(explained({"--hardware", path("here.json"), "--set", "run.threads=0"}),
            explained({"--set", "run.threads=2"}));
  // Another one has another plan, without a word on whether it fits here.
  hardware.processor.threads = 100000;  // more than this process may start
  write_file(path("there.json"), hardware_json(hardware));
  const std::vector<std::string> there{
      "--hardware", path("there.json"),       "--set", "run.threads=0",
      "--set",      "data.context=65536",     "--set", "train.micro_batch=1024",
      "--set",      "train.global_batch=1024"};
  EXPECT_THAT(explained(there), ::testing::Not(HasSubstr("does not fit")));
  const auto peak = [&](std::vector<std::string> more) {
    more.emplace_back("--json");
    return nlohmann::json::parse(explained(more))["totals"]["peak_bytes"].get<int64_t>();
  };
  EXPECT_GT(peak(there), peak({"--hardware", path("here.json"), "--set", "run.threads=0"}));
  EXPECT_GT(peak({"--hardware", path("there.json"), "--set", "run.threads=0"}),
            peak({"--hardware", path("there.json"), "--set", "run.threads=1"}));
  write_file(path("broken.json"), "{}");
  EXPECT_THAT(run({"explain", config_path().string(), "--hardware", path("broken.json")}).output,
              HasSubstr("broken.json"));
}

TEST_F(CommandTest, InterruptedRunSavesAndResumesToTheSameBits) {
  prepare();
  ASSERT_EQ(run(train({"--set", "run.directory=" + path("whole")})).status, 0);
  auto process = start(train());
  while (process->running() && !fs::exists(path("run/metrics.jsonl"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process->signal(SIGINT);
  EXPECT_EQ(process->wait(), 0) << process->output();
  EXPECT_THAT(process->output(), HasSubstr("interrupted: saved step"));
  ASSERT_EQ(run(train({"--resume"})).status, 0);
  EXPECT_EQ(hashes("run"), hashes("whole"));
}

TEST_F(CommandTest, KilledRunsResumeToTheSameBits) {
  prepare();
  const std::vector<std::string> often{"--set", "checkpoint.every=1", "--set", "train.steps=60",
                                       "--set", "run.csv=true"};
  auto whole = train(often);
  whole.insert(whole.end(), {"--set", "run.directory=" + path("whole")});
  ASSERT_EQ(run(whole).status, 0);
  const CounterRandom random(11, "kill");
  const auto lines = [&] {
    const fs::path metrics = path("run/metrics.jsonl");
    return fs::exists(metrics) ? testing::occurrences(read_file(metrics), "\n") : 0;
  };
  bool finished = false;
  for (uint64_t round = 0; round < 12 && !finished; ++round) {
    auto arguments = train(often);
    // Killed before its first checkpoint was complete, it starts as if nothing had been.
    const bool saved = run({"checkpoint", "inspect", path("run")}).status == 0;
    if (saved) arguments.emplace_back("--resume");
    // Somewhere within the save of one of its next steps.
    const size_t steps = lines() + 1 + random.bits(2 * round) % 10;
    auto process = start(arguments);
    while (process->running() && lines() < steps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.bits(2 * round + 1) % 10000));
    finished = !process->running();
    process->signal(SIGKILL);
    process->wait();
    const Result verified = run({"checkpoint", "verify", path("run")});
    if (run({"checkpoint", "inspect", path("run")}).status == 0) {
      EXPECT_EQ(verified.status, 0) << verified.output;
    }
  }
  auto last = train(often);
  if (run({"checkpoint", "inspect", path("run")}).status == 0) last.emplace_back("--resume");
  const Result ended = run(last);
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(hashes("run"), hashes("whole"));
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(losses("run").size(), 61U) << "a header and a line a step";
}

TEST_F(CommandTest, ErrorsSayWhatWasFoundAndWhatToDo) {
  const auto expect_error = [&](std::vector<std::string> arguments, const char* message) {
    const Result result = run(std::move(arguments));
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
  };
  expect_error({"train", path("absent.toml")}, "absent.toml");
  expect_error(train({"--set", "model.laiers=3"}), "layers");
  expect_error(train({"--set", "train.micro_batch=3"}), "does not divide");
  expect_error(train(), "tessera prepare");
  expect_error({"eval", "--checkpoint", path("nothing")}, "nothing");
  expect_error(
      {"prepare", "--input", path("nothing"), "--output", path("data"), "--tokenizer", "bytes"},
      "no input file matches");
  expect_error({"prepare", "--input", path("text.txt"), "--output", path("data"), "--tokenizer",
                "bytes", "--context", "100000000"},
               "100000000");
  EXPECT_NE(run({"unknown"}).status, 0);
}

TEST_F(CommandTest, AFlippedBitIsNamedByItsTensor) {
  prepare();
  ASSERT_EQ(run(train({"--set", "train.steps=2", "--set", "optimizer.warmup_steps=1"})).status, 0);
  const fs::path checkpoint = folder_.path() / "run/checkpoints/step-00000002";
  const Result before = run({"checkpoint", "inspect", checkpoint.string(), "--json"});
  const auto first = nlohmann::json::parse(before.output)["tensors"][0];
  const fs::path file = checkpoint / first["pieces"][0]["file"].get<std::string>();
  std::string bytes = read_file(file);
  const uint64_t header = *reinterpret_cast<const uint64_t*>(bytes.data());
  bytes[8 + header + 5] ^= 0x10;
  write_file(file, bytes);
  const Result damaged = run({"checkpoint", "verify", checkpoint.string()});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.output, HasSubstr(first["name"].get<std::string>()));
  const Result resumed = run(train({"--resume"}));
  EXPECT_EQ(resumed.status, 1);
  EXPECT_THAT(resumed.output, HasSubstr(first["name"].get<std::string>()));
}

TEST_F(CommandTest, OptionsOutOfRangeAreNamed) {
  const auto expect_refused = [&](const char* command, const char* option, const char* value) {
    const Result result = run({command, "--checkpoint", path("run"), option, value});
    EXPECT_NE(result.status, 0) << command << " " << option << " " << value;
    EXPECT_THAT(result.output, HasSubstr(std::string(option) + ": "));
  };
  expect_refused("eval", "--threads", "-1");
  expect_refused("generate", "--threads", "-1");
  expect_refused("generate", "--tokens", "0");
  expect_refused("generate", "--temperature", "-1");
  expect_refused("generate", "--top-k", "-1");
  expect_refused("generate", "--top-p", "0");
  expect_refused("generate", "--top-p", "1.5");
}

TEST_F(CommandTest, GenerateWritesThePromptOnlyWhereItGoesOn) {
  prepare();
  ASSERT_EQ(run(train({"--set", "train.steps=2", "--set", "optimizer.warmup_steps=1"})).status, 0);
  const auto generate = [&](const char* tokens) {
    return run({"generate", "--checkpoint", path("run"), "--prompt", "zebra", "--tokens", tokens,
                "--ignore-end"});
  };
  const Result good = generate("3");
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_TRUE(good.output.starts_with("zebra")) << good.output;
  EXPECT_THAT(good.output, HasSubstr("step-00000002 (step 2): 3 tokens, "));
  const Result bad = generate("1000");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("lower --tokens"));
  EXPECT_THAT(bad.output, Not(HasSubstr("zebra")));
}

#if defined(TESSERA_ONEDNN) && defined(__x86_64__)
TEST_F(CommandTest, AProcessorWithoutBf16ProductsTrainsInItAllTheSame) {
  prepare();
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  const auto run_in = [&](const std::string& precision) {
    return run(train({"--set", "train.steps=4", "--set", "optimizer.warmup_steps=1", "--set",
                      "train.precision=" + precision, "--set",
                      "run.directory=\"" + path(precision.c_str()) + "\""}));
  };
  const Result narrow = run_in("bf16");
  const Result wide = run_in("fp32");
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(narrow.status, 0) << narrow.output;
  EXPECT_THAT(narrow.output, HasSubstr("has no matrix products in bf16"));
  EXPECT_EQ(wide.status, 0) << wide.output;
  EXPECT_THAT(wide.output, Not(HasSubstr("has no matrix products")));
  const auto loss = [&](const char* precision) {
    return read_metrics(fs::path(path(precision)) / "metrics.jsonl").back().loss;
  };
  EXPECT_NEAR(loss("bf16"), loss("fp32"), 0.01 * loss("fp32"));
  EXPECT_NE(loss("bf16"), loss("fp32"));
}

TEST_F(CommandTest, ARunOnADeviceIsNotWarnedOfTheProcessorsProducts) {
  prepare();
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  const Result result = run(train({"--set", "train.steps=1", "--set", "optimizer.warmup_steps=1",
                                   "--set", "train.precision=bf16", "--set",
                                   "run.device=\"emulated\"", "--set", "run.hardware=\"\""}));
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("has no matrix products")));
}
#endif

}  // namespace
}  // namespace tessera
