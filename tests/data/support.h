#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "support/temporary_folder.h"

namespace tessera {

/// Lines of words, every text of its own by `seed`.
inline std::string random_text(uint64_t seed, int64_t words) {
  const CounterRandom random(seed, "text");
  std::string text;
  for (int64_t i = 0; i < words; ++i) {
    const uint64_t bits = random.bits(static_cast<uint64_t>(i));
    for (uint64_t letter = 0; letter < 1 + bits % 7; ++letter) {
      text.push_back(static_cast<char>('a' + (bits >> (8 + 4 * letter)) % 16));
    }
    text.push_back(bits % 11 == 0 ? '\n' : ' ');
  }
  return text;
}

/// Writes a tokenizer's files, so that load_tokenizer(folder) gives it again.
inline void save_tokenizer(const Tokenizer& tokenizer, const fs::path& folder) {
  for (const TokenizerFile& file : tokenizer.files()) write_file(folder / file.name, file.content);
}

/// Writes a file that need not survive a power cut, for tests that write hundreds of them.
inline fs::path write_quickly(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

/// The files below a folder by name, with their bytes.
inline std::map<std::string, std::string> folder_contents(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      contents[entry.path().lexically_relative(folder).string()] = read_file(entry.path());
    }
  }
  return contents;
}

/// The message of the Error that `body` throws; fails the test when it throws none.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

/// Options for raw bytes, quiet, with small work items and shards so that there are many.
inline PrepareOptions byte_options(const fs::path& input, const fs::path& output,
                                   int64_t context = 16) {
  PrepareOptions options;
  options.inputs = {input.string()};
  options.output = output;
  options.tokenizer = "bytes";
  options.context = context;
  options.seed = 7;
  options.held_out = 0.1;
  options.shard_tokens = 40 * context;
  options.item_bytes = 1000;
  options.threads = 2;
  options.progress = false;
  return options;
}

}  // namespace tessera
