#include "data/shards/manifest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "data/npy.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera-data";
constexpr int kVersion = 1;

Json to_json(const SplitSummary& split) {
  Json shards = Json::array();
  for (const Shard& shard : split.shards) {
    shards.push_back({{"file", shard.file},
                      {"instances", shard.instances},
                      {"bytes", shard.bytes},
                      {"xxh3", shard.hash}});
  }
  return {{"instances", split.instances},
          {"tokens", split.tokens},
          {"documents", split.documents},
          {"shards", std::move(shards)}};
}

SplitSummary split_from_json(const Json& json) {
  SplitSummary split{json.at("instances"), json.at("tokens"), json.at("documents"), {}};
  for (const Json& shard : json.at("shards")) {
    split.shards.push_back(
        {shard.at("file"), shard.at("instances"), shard.at("bytes"), shard.at("xxh3")});
  }
  return split;
}

Manifest from_json(const Json& json, const std::string& origin) {
  Manifest manifest;
  manifest.recipe = recipe_from_text(json.at("recipe").dump(), origin);
  const Json& tokenizer = json.at("tokenizer");
  tokenizer.at("kind").get_to(manifest.tokenizer_kind);
  // Tokenizers of one file were once named without a list.
  if (tokenizer.contains("files")) {
    tokenizer.at("files").get_to(manifest.tokenizer_files);
  } else {
    manifest.tokenizer_files = {tokenizer.at("file").get<std::string>()};
  }
  tokenizer.at("xxh3").get_to(manifest.tokenizer_fingerprint);
  tokenizer.at("vocabulary_size").get_to(manifest.vocabulary_size);
  tokenizer.at("end_of_document").get_to(manifest.end_of_document);
  manifest.dtype = json.at("dtype") == npy_type_name(DType::u16) ? DType::u16 : DType::i32;
  manifest.train = split_from_json(json.at("train"));
  manifest.held_out = split_from_json(json.at("held_out"));
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

void check(const Manifest& manifest, const std::string& origin) {
  const auto require = [&](bool holds, std::string_view what) {
    if (!holds) throw Error("{} is damaged: {}; run prepare again", origin, what);
  };
  require(manifest.recipe.context >= 2, "its context is below 2");
  require(manifest.vocabulary_size > 0, "its vocabulary is empty");
  require(!manifest.tokenizer_files.empty() &&
              std::ranges::all_of(manifest.tokenizer_files, is_plain_name),
          "its tokenizer's files are not plain names");
  require(manifest.end_of_document >= 0 && manifest.end_of_document < manifest.vocabulary_size,
          "its end-of-document token lies outside the vocabulary");
  for (const Split which : {Split::train, Split::held_out}) {
    const SplitSummary& split = manifest.split(which);
    int64_t instances = 0;
    for (const Shard& shard : split.shards) {
      require(shard.instances > 0, "a shard has no instances");
      // The name is joined to the folder's path, so it may not lead out of the folder.
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

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  const Json json = {
      {"format", kFormat},
      {"version", kVersion},
      {"context", manifest.recipe.context},
      {"seed", manifest.recipe.seed},
      {"dtype", npy_type_name(manifest.dtype)},
      {"tokenizer",
       {{"kind", manifest.tokenizer_kind},
        {"files", manifest.tokenizer_files},
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
      {"recipe", Json::parse(recipe_to_text(manifest.recipe))},
  };
  // A path or a reason may hold bytes that are not UTF-8; they are replaced rather than refused.
  write_file(folder / kManifestName,
             json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (!fs::exists(path)) {
    throw Error(
        "{} is not a complete folder of prepared data: it has no {}; run `tessera prepare` (again) "
        "with this folder as --output",
        folder.string(), kManifestName);
  }
  const std::string origin = path.string();
  Manifest manifest;
  try {
    const Json json = Json::parse(read_file(path));
    if (json.at("format") != kFormat) throw Error("{} is not a manifest of ours", origin);
    if (json.at("version") != kVersion) {
      throw Error("{} has format version {}; expected {}: run prepare again in another folder",
                  origin, json.at("version").dump(), kVersion);
    }
    manifest = from_json(json, origin);
  } catch (const nlohmann::json::exception& error) {
    throw Error("{} is damaged ({}); run prepare again", origin, error.what());
  }
  check(manifest, origin);
  return manifest;
}

void verify_shards(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  for (const Split which : {Split::train, Split::held_out}) {
    for (const Shard& shard : manifest.split(which).shards) {
      const fs::path path = folder / shard.file;
      if (!fs::exists(path)) {
        throw Error("{} is missing; run prepare again with --overwrite", path.string());
      }
      const std::string found = hash_text(hash(MappedFile(path).bytes()));
      if (found != shard.hash) {
        throw Error(
            "{} is damaged: its hash is {}, the manifest says {}; run prepare again with "
            "--overwrite",
            path.string(), found, shard.hash);
      }
    }
  }
}

}  // namespace tessera
