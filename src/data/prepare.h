#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/shards/manifest.h"

namespace tessera {

/// The options of `tessera prepare`. The options of the first group decide what is written: a
/// folder that was begun with other values is not continued.
struct PrepareOptions {
  // These decide what is written.
  std::vector<std::string> inputs;    // files, folders, globs (see scan_inputs())
  std::string tokenizer;              // see load_tokenizer(); empty if one is trained
  std::string end_of_document;        // for a Hugging Face tokenizer that does not name it
  std::string beginning_of_document;  // see beginning_of_document(); "": none
  int64_t train_tokenizer = 0;        // pieces of the SentencePiece model to train; 0: none
  int64_t context = 2048;             // tokens per instance
  uint64_t seed = 0;                  // the seed of the permutation
  double held_out = 0.01;             // fraction of the instances, in [0, 1)
  std::string text_field = "text";    // the field of a JSONL object (see JsonLineParser)
  int64_t shard_tokens = int64_t{1} << 26;
  int64_t tokenizer_sample_bytes = int64_t{32} << 20;  // bytes of text to train a tokenizer on
  int64_t item_bytes = 0;  // bytes of text per work item; 0: by the corpus, 256 KiB to 16 MiB

  // These do not affect what is written.
  fs::path output;
  int64_t max_bad_lines = 100;        // the most invalid JSONL lines that are allowed
  bool fail_on_invalid_utf8 = false;  // otherwise broken bytes become U+FFFD and are counted
  int threads = 0;                    // 0: all usable cores
  bool overwrite = false;             // first remove what an earlier run wrote into `output`
  bool progress = true;               // show a progress line on standard error
};

/// The result of prepare(). If there was nothing to do, only the first two members are set.
struct PrepareReport {
  Manifest manifest;
  bool was_complete = false;  // true if there was nothing to do
  int64_t items = 0;          // the number of all work items
  int64_t items_reused = 0;   // the work items that an earlier, unfinished run had done
  int64_t shards_reused = 0;
  double seconds = 0;
};

/// Prepares text for training (Optimus §4, data preprocessing). It reads the inputs and tokenizes
/// them on all cores. It puts the end-of-document token after each document, and the
/// beginning-of-document token before it if one is given. It cuts the token stream into instances
/// of `context` tokens, permutes them all by `seed` and writes them as shards.
///
/// The output folder then holds the tokenizer, the shards train-NNNNN.npy and held_out-NNNNN.npy,
/// each an array [instances, context], the hashes of their blocks (see block_hashes.h), and
/// manifest.json, which is written last. Equal options and inputs give equal bytes, whatever the
/// number of threads. Memory does not grow with the corpus, except for a few words per file, work
/// item and shard.
///
/// After a run was killed, the same call continues it. A call on a complete folder verifies its
/// shards and changes nothing. Under an InterruptGuard, Ctrl-C ends the tokenizing and the
/// gathering of shards within moments, with an Error that says so. If it comes while a tokenizer is
/// trained, the run ends after the training. Throws Error for everything that a user can fix:
/// options, inputs, folders, a full disk.
PrepareReport prepare(const PrepareOptions& options, const Logger& logger);

}  // namespace tessera
