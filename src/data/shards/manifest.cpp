#include "data/shards/manifest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/hash_line.h"
#include "data/npy.h"
#include "data/shards/block_hashes.h"

// from_json() reads both format versions; write_manifest() writes the newest. check_manifest()
// refuses a manifest that contradicts itself or names a file outside its folder.

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera-data";

OrderedJson to_json(const SplitSummary& split) {
  OrderedJson shards = OrderedJson::array();
  for (const Shard& shard : split.shards) {
    shards.push_back({{"file", shard.file},
                      {"instances", shard.instances},
                      {"bytes", shard.bytes},
                      {"xxh3", shard.hash},
                      {"blocks_xxh3", shard.blocks_hash}});
  }
  return {{"instances", split.instances},
          {"tokens", split.tokens},
          {"documents", split.documents},
          {"shards", std::move(shards)}};
}

SplitSummary split_from_json(const OrderedJson& json, int64_t version) {
  SplitSummary split{json.at("instances"), json.at("tokens"), json.at("documents"), {}};
  for (const OrderedJson& shard : json.at("shards")) {
    split.shards.push_back({shard.at("file"), shard.at("instances"), shard.at("bytes"),
                            shard.at("xxh3"), version == 1 ? "" : shard.at("blocks_xxh3")});
  }
  return split;
}

std::vector<TokenizerFileHash> tokenizer_files_from_json(const OrderedJson& tokenizer,
                                                         int64_t version) {
  std::vector<TokenizerFileHash> files;
  if (version == 1) {
    // Manifests of one-file tokenizers once had no list of files.
    if (!tokenizer.contains("files")) return {{tokenizer.at("file").get<std::string>(), ""}};
    for (const OrderedJson& name : tokenizer.at("files"))
      files.push_back({name.get<std::string>(), ""});
  } else {
    for (const OrderedJson& file : tokenizer.at("files")) {
      files.push_back({file.at("name"), file.at("xxh3")});
    }
  }
  return files;
}

OrderedJson to_json(const std::vector<TokenizerFileHash>& files) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [name, file_hash] : files) list.push_back({{"name", name}, {"xxh3", file_hash}});
  return list;
}

Manifest from_json(const OrderedJson& json, const std::string& origin) {
  Manifest manifest;
  json.at("version").get_to(manifest.version);
  manifest.recipe = recipe_from_text(json.at("recipe").dump(), origin);
  const OrderedJson& tokenizer = json.at("tokenizer");
  tokenizer.at("kind").get_to(manifest.tokenizer_kind);
  manifest.tokenizer_files = tokenizer_files_from_json(tokenizer, manifest.version);
  tokenizer.at("xxh3").get_to(manifest.tokenizer_fingerprint);
  tokenizer.at("vocabulary_size").get_to(manifest.vocabulary_size);
  tokenizer.at("end_of_document").get_to(manifest.end_of_document);
  manifest.dtype = json.at("dtype") == npy_type_name(DType::u16) ? DType::u16 : DType::i32;
  manifest.train = split_from_json(json.at("train"), manifest.version);
  manifest.held_out = split_from_json(json.at("held_out"), manifest.version);
  json.at("documents").get_to(manifest.documents);
  json.at("tokens").get_to(manifest.tokens);
  json.at("tokens_dropped").get_to(manifest.tokens_dropped);
  json.at("empty_files").get_to(manifest.empty_files);
  json.at("empty_documents").get_to(manifest.empty_documents);
  json.at("bad_lines").get_to(manifest.bad_lines);
  json.at("first_bad_lines").get_to(manifest.first_bad_lines);
  json.at("invalid_utf8").get_to(manifest.invalid_utf8);
  return manifest;
}

/// Throws Error if the manifest contradicts itself.
void check_manifest(const Manifest& manifest, const std::string& origin) {
  const auto require = [&](bool holds, std::string_view problem) {
    if (!holds) throw Error("{} is damaged: {}; {}", origin, problem, kPrepareAgain);
  };
  require(manifest.recipe.context >= 2, "its context is below 2");
  require(manifest.vocabulary_size > 0, "its vocabulary is empty");
  require(
      !manifest.tokenizer_files.empty() &&
          std::ranges::all_of(manifest.tokenizer_files, is_plain_name, &TokenizerFileHash::name),
      "its tokenizer's files are not plain names");
  require(manifest.end_of_document >= 0 && manifest.end_of_document < manifest.vocabulary_size,
          "its end-of-document token lies outside the vocabulary");
  for (const Split which : {Split::train, Split::held_out}) {
    const SplitSummary& split = manifest.split(which);
    int64_t instances = 0;
    for (const Shard& shard : split.shards) {
      require(shard.instances > 0, "a shard has no instances");
      // The name is joined to the folder's path, so it must not lead out of the folder.
      require(!shard.file.empty() && fs::path(shard.file).filename() == shard.file &&
                  shard.file != "..",
              "a shard's file is not a plain name");
      instances += shard.instances;
    }
    require(instances == split.instances, "its shards do not add up to the instances it states");
  }
}

}  // namespace

std::string_view split_name(Split split) { return split == Split::train ? "train" : "held_out"; }

std::string_view empty_split_advice(Split split) {
  return split == Split::train
             ? "prepare it again, into another folder, with a smaller --held-out; of token files "
               "and Megatron datasets set held_out of their [[data.sources]] below 1"
             : "prepare it again, into another folder, with --held-out above 0 and more than one "
               "sequence of text; of token files and Megatron datasets set held_out of their "
               "[[data.sources]] above 0";
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  const OrderedJson json = {
      {"format", kFormat},
      {"version", kManifestVersion},
      {"context", manifest.recipe.context},
      {"seed", manifest.recipe.seed},
      {"dtype", npy_type_name(manifest.dtype)},
      {"tokenizer",
       {{"kind", manifest.tokenizer_kind},
        {"files", to_json(manifest.tokenizer_files)},
        {"xxh3", manifest.tokenizer_fingerprint},
        {"vocabulary_size", manifest.vocabulary_size},
        {"end_of_document", manifest.end_of_document}}},
      {"documents", manifest.documents},
      {"tokens", manifest.tokens},
      {"tokens_dropped", manifest.tokens_dropped},
      {"train", to_json(manifest.train)},
      {"held_out", to_json(manifest.held_out)},
      {"empty_files", manifest.empty_files},
      {"empty_documents", manifest.empty_documents},
      {"bad_lines", manifest.bad_lines},
      {"first_bad_lines", manifest.first_bad_lines},
      {"invalid_utf8", manifest.invalid_utf8},
      {"recipe", OrderedJson::parse(recipe_to_text(manifest.recipe))},
  };
  // A path or a reason may contain bytes that are not UTF-8. They are replaced, not refused.
  write_file(
      folder / kManifestName,
      with_hash_line(json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n"));
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (!path_exists(path)) {
    throw Error(
        "{} is not a complete folder of prepared data: it has no {}; run `tessera prepare` (again) "
        "with this folder as --output",
        folder.string(), kManifestName);
  }
  const std::string origin = path.string();
  Manifest manifest;
  try {
    const std::string text = read_file(path);
    const bool has_hash = has_hash_line(text);
    if (has_hash) check_hash_line(text, origin, kPrepareAgain);
    const OrderedJson json = OrderedJson::parse(text);
    if (json.at("format") != kFormat) throw Error("{} is not a manifest of ours", origin);
    const OrderedJson& version = json.at("version");
    if (version != 1 && version != kManifestVersion) {
      throw Error("{} has format version {}; expected {}: run prepare again in another folder",
                  origin, version.dump(), kManifestVersion);
    }
    if (version != 1 && !has_hash) {
      throw Error("{} is damaged: it does not start with its hash; {}", origin, kPrepareAgain);
    }
    manifest = from_json(json, origin);
  } catch (const nlohmann::json::exception& error) {
    throw Error("{} is damaged ({}); {}", origin, error.what(), kPrepareAgain);
  }
  check_manifest(manifest, origin);
  return manifest;
}

bool is_prepared_folder(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  const std::string format = fmt::format("\"format\": \"{}\"", kFormat);
  return is_file(path) && read_file(path).find(format) != std::string::npos;
}

void require_shard_bytes(const fs::path& path, int64_t bytes, const Shard& shard) {
  if (bytes == shard.bytes) return;
  throw Error("{}: its size in bytes is {}, but the manifest says {}; it is damaged: {}",
              path.string(), bytes, shard.bytes, kPrepareAgain);
}

void verify_prepared_tokenizer(const fs::path& folder, const Manifest& manifest) {
  if (manifest.version == 1) {
    load_tokenizer(folder);  // compares it with the manifest
  } else {
    read_tokenizer_files(folder, manifest.tokenizer_files, kPrepareAgain);
  }
}

void verify_prepared(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  verify_prepared_tokenizer(folder, manifest);
  for (const Split which : {Split::train, Split::held_out}) {
    for (const Shard& shard : manifest.split(which).shards) {
      const fs::path path = folder / shard.file;
      if (!path_exists(path)) throw Error("{} is missing; {}", path.string(), kPrepareAgain);
      const FileHashes hashes = hash_file(ReadFile(path));
      if (const std::string found = hash_text(hashes.whole); found != shard.hash) {
        throw Error("{} is damaged: its hash is {}, the manifest says {}; {}", path.string(), found,
                    shard.hash, kPrepareAgain);
      }
      if (manifest.version == 1) continue;
      const fs::path hashes_path = folder / block_hashes_name(shard.file);
      if (read_block_hashes(hashes_path, shard.blocks_hash) == hashes.blocks) continue;
      throw Error("{} does not hold the hashes of {}; {}", hashes_path.string(), path.string(),
                  kPrepareAgain);
    }
  }
}

}  // namespace tessera
