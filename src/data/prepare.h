#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/shards/manifest.h"

namespace tessera {

/// What `tessera prepare` is asked to do. Options that change what is written say so; a folder that
/// was begun with other values of those is not continued.
struct PrepareOptions {
  // These decide what is written.
  std::vector<std::string> inputs;    // files, folders, globs (see scan_inputs())
  std::string tokenizer;              // see load_tokenizer(); empty where one is trained
  std::string end_of_document;        // of a Hugging Face tokenizer that does not say which it is
  std::string beginning_of_document;  // see the function of that name; "": none
  int64_t train_tokenizer = 0;        // pieces of a SentencePiece model to train; 0: none
  int64_t context = 2048;             // tokens an instance
  uint64_t seed = 0;                  // of the permutation
  double held_out = 0.01;             // fraction of the instances, in [0, 1)
  std::string text_field = "text";    // of a JSONL object (see JsonLineParser)
  int64_t shard_tokens = int64_t{1} << 26;
  int64_t tokenizer_sample_bytes = int64_t{32} << 20;  // of text to train a tokenizer on
  int64_t item_bytes = 0;  // text in a work item; 0: by the corpus, 256 KiB to 16 MiB

  // These do not.
  fs::path output;
  int64_t max_bad_lines = 100;        // more invalid JSONL lines than this are an error
  bool fail_on_invalid_utf8 = false;  // otherwise broken bytes become U+FFFD and are counted
  int threads = 0;                    // 0: all cores
  bool overwrite = false;             // remove first what prepare wrote into `output` before
  bool progress = true;               // a progress line on standard error
};

struct PrepareReport {
  Manifest manifest;
  bool was_complete = false;  // there was nothing to do
  int64_t items = 0;          // work items
  int64_t items_reused = 0;   // of which an earlier, unfinished run had done
  int64_t shards_reused = 0;
  double seconds = 0;
};

/// Prepares text for training (Optimus §4, data preprocessing): reads the inputs, tokenizes them on
/// all cores, puts the end-of-document token after each document and
/// what is asked for before it, cuts the token stream into
/// instances of `context` tokens, permutes all of them by `seed` and writes them as shards.
///
/// The output folder then holds the tokenizer, train-NNNNN.npy and held_out-NNNNN.npy, each an
/// array [instances, context], and manifest.json, which is written last. Equal options and inputs
/// give equal bytes, whatever the number of threads. Memory does not grow with the corpus but for a
/// few words per file and work item.
///
/// A run that was killed is continued by the same call; a call on a complete folder verifies its
/// shards and changes nothing. While an InterruptGuard lives, Ctrl-C ends the run within moments,
/// the training of a tokenizer only at its end, with an Error that says so.
/// Throws Error on everything that a user can mend: options, inputs, folders, a full disk.
PrepareReport prepare(const PrepareOptions& options, const Logger& logger);

}  // namespace tessera
