#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/shards/recipe.h"
#include "data/tokenizer.h"
#include "tensor/dtype.h"

namespace tessera {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 2;
/// Advice on what to do with a damaged folder. Errors end with it.
inline constexpr std::string_view kPrepareAgain =
    "restore the file, or run prepare again with --overwrite";

/// The two splits of prepared data. They have no instance in common.
enum class Split { train, held_out };

/// Returns "train" or "held_out". The names of the shards begin with it.
std::string_view split_name(Split split);

/// Returns advice on what to do if a split is needed but empty.
std::string_view empty_split_advice(Split split);

/// One .npy file, an array [instances, context].
struct Shard {
  std::string file;  // its name in the folder
  int64_t instances = 0;
  int64_t bytes = 0;  // the size of the whole file
  std::string hash;   // XXH3-64 of the whole file, hexadecimal
  /// XXH3-64 of the file with the hashes of the shard's blocks (see block_hashes.h). It is "" in
  /// folders of version 1, which have no such files.
  std::string blocks_hash;
  bool operator==(const Shard&) const = default;
};

/// The size of one split, and its shards in the order of their instances.
struct SplitSummary {
  int64_t instances = 0;
  int64_t tokens = 0;     // instances * context
  int64_t documents = 0;  // number of end-of-document tokens
  std::vector<Shard> shards;
};

/// The manifest of a prepared folder, manifest.json. It is written last: a folder without it is not
/// complete. Its hash line (see hash_line.h) covers the manifest, and its other hashes cover every
/// other file of the folder. Version 1 had no hash line, no hashes of blocks and no hashes of the
/// tokenizer's files; it is still read.
struct Manifest {
  int64_t version = kManifestVersion;
  Recipe recipe;
  std::string tokenizer_kind;                      // see Tokenizer::kind()
  std::vector<TokenizerFileHash> tokenizer_files;  // as in the folder; in version 1 without hashes
  std::string tokenizer_fingerprint;
  int64_t vocabulary_size = 0;
  int32_t end_of_document = 0;
  DType dtype = DType::u16;  // the type of ids in the shards: u16 if the vocabulary fits, else i32
  SplitSummary train;
  SplitSummary held_out;
  int64_t documents = 0;
  int64_t tokens = 0;          // in the corpus, including end-of-document tokens
  int64_t tokens_dropped = 0;  // at the corpus's end, too few for an instance
  int64_t empty_files = 0;
  int64_t empty_documents = 0;
  int64_t bad_lines = 0;
  std::vector<std::string> first_bad_lines;  // "file:line: reason"
  int64_t invalid_utf8 = 0;                  // number of replacements by U+FFFD

  const SplitSummary& split(Split which) const { return which == Split::train ? train : held_out; }
};

/// Writes folder/manifest.json atomically.
void write_manifest(const fs::path& folder, const Manifest& manifest);

/// Reads folder/manifest.json. Throws Error when the folder is not complete (with the advice to run
/// prepare again), and when the manifest is damaged, contradicts itself or has an unknown version.
Manifest read_manifest(const fs::path& folder);

/// Returns whether the folder holds the manifest of prepared data, even a damaged one. A
/// checkpoint's manifest has the same name, manifest.json.
bool is_prepared_folder(const fs::path& folder);

/// Throws Error when a shard's file does not have the size that the manifest states.
void require_shard_bytes(const fs::path& path, int64_t bytes, const Shard& shard);

/// Checks the tokenizer in the folder. Its files are compared by their hashes. In version 1 the
/// tokenizer is loaded and compared with the manifest. Throws Error naming a damaged file.
void verify_prepared_tokenizer(const fs::path& folder, const Manifest& manifest);

/// Reads all files of a prepared folder and compares every hash of the manifest. Throws Error
/// naming the first file that is damaged or missing.
void verify_prepared(const fs::path& folder);

}  // namespace tessera
