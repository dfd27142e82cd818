#pragma once

#include <string>

#include "base/file.h"
#include "base/random.h"
#include "config/load_config.h"
#include "config/resolve.h"
#include "data/prepare.h"
#include "support/known_peak.h"
#include "support/temporary_folder.h"
#include "support/two_threads.h"

namespace tessera::testing {

/// Sentences of a small grammar: text that a small model learns something of in a few steps.
inline std::string small_text(int sentences) {
  const std::vector<std::string> subjects{"the cat", "a dog", "my friend", "the old king"};
  const std::vector<std::string> verbs{"sees", "likes", "follows", "draws"};
  const CounterRandom random(1, "text");
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    const uint64_t bits = random.bits(static_cast<uint64_t>(i));
    text += subjects[bits % 4] + " " + verbs[(bits >> 8) % 4] + " " + subjects[(bits >> 16) % 4] +
            ".\n";
  }
  return text;
}

/// Prepares a text as bytes below `folder`/data, and writes `folder`/hardware.json.
inline void prepare_text(const fs::path& folder, const std::string& text, int64_t context = 32) {
  write_file(folder / "text.txt", text);
  PrepareOptions options;
  options.inputs = {(folder / "text.txt").string()};
  options.output = folder / "data";
  options.tokenizer = "bytes";
  options.context = context;
  options.held_out = 0.05;
  options.progress = false;
  options.threads = two_threads();
  prepare(options, Logger());
  write_known_peak(folder / "hardware.json", two_threads());
}

/// Prepares the small text.
inline void prepare_small_data(const fs::path& folder, int64_t context = 32, int sentences = 600) {
  prepare_text(folder, small_text(sentences), context);
}

/// A small mixture of experts on that data, as the text of a configuration file. The rate of matrix
/// products is that of `folder`/hardware.json.
inline std::string small_config(const fs::path& folder, const std::string& run = "run") {
  return "[run]\ndirectory = \"" + (folder / run).string() +
         "\"\nthreads = " + std::to_string(two_threads()) + "\nhardware = \"" +
         (folder / "hardware.json").string() +
         "\"\n"
         "[model]\nfamily = \"olmoe\"\nlayers = 2\nhidden_size = 32\nheads = 2\nkv_heads = 2\n"
         "experts = 4\nexperts_per_token = 2\nexpert_size = 16\n"
         "[data]\ndirectory = \"" +
         (folder / "data").string() +
         "\"\ncontext = 32\n"
         "[train]\nsteps = 200\nmicro_batch = 2\nglobal_batch = 4\n"
         "[optimizer]\nlearning_rate = 1e-2\nminimum_learning_rate = 1e-3\nwarmup_steps = 10\n"
         "[checkpoint]\nevery = 50\n";
}

}  // namespace tessera::testing
