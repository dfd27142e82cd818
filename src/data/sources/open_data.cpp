#include "data/sources/open_data.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/links.h"
#include "base/random.h"
#include "data/shards/gather.h"
#include "data/shards/manifest.h"
#include "data/shards/split_reader.h"
#include "data/sources/token_files.h"

// open_data() finds the one tokenizer of all sources, decides each source's format and opens it. A
// prepared folder is a source of instances; other files are StoredTokens, cut by a DirectSource.

namespace tessera {
namespace {

bool is_name_letter(unsigned char letter) {
  return std::isalnum(letter) != 0 || letter == '_' || letter == '.' || letter == '-';
}

/// Returns a name for the source at a path: "web" for "data/web", "code_text_document" for
/// "m/code_text_document.idx", "olmo" for "olmo/*.npy". A name must have more than digits, because
/// `--set data.sources.0.weight=1` means the first source.
std::string name_of_path(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  fs::path part = path;
  while (part.has_relative_path() &&
         part.filename().string().find_first_of("*?[{~") != std::string::npos) {
    part = part.parent_path();
  }
  std::string name = part.filename().string();
  for (const std::string_view suffix : {".npy", ".idx", ".bin"}) {
    if (name.size() > suffix.size() && name.ends_with(suffix)) {
      name.resize(name.size() - suffix.size());
      break;
    }
  }
  std::ranges::replace_if(
      name, [](unsigned char letter) { return !is_name_letter(letter); }, '_');
  return name.find_first_not_of("._0123456789") == std::string::npos ? "source_" + name : name;
}

void require_valid_name(const std::string& name) {
  const bool only_digits =
      std::ranges::all_of(name, [](unsigned char letter) { return std::isdigit(letter) != 0; });
  if (only_digits || !std::ranges::all_of(name, is_name_letter)) {
    throw Error(
        "a source of [[data.sources]] is named \"{}\"; expected letters, digits, '_', '.' and '-', "
        "not digits alone",
        name);
  }
}

/// Returns whether a path is a pattern of token files. A folder's name may contain glob characters.
/// An error of is_directory() is ignored, because a pattern may be longer than any file name.
bool is_glob(const std::string& path) {
  std::error_code ignored;
  return path.find_first_of("*?[{") != std::string::npos && !fs::is_directory(path, ignored);
}

SourceFormat format_of(const SourceConfig& source) {
  if (source.format != SourceFormat::automatic) return source.format;
  std::error_code code;
  if (fs::is_directory(source.path, code)) return SourceFormat::prepared;
  const MegatronPaths paths = megatron_paths(source.path);
  if (fs::exists(paths.index, code)) return SourceFormat::megatron;
  if (is_glob(source.path) || is_file(source.path)) return SourceFormat::tokens;
  throw Error(
      "there is no data at \"{}\"{}: expected a folder that `tessera prepare` wrote, the prefix of "
      "a Megatron dataset (no {} is there), or token files by name or glob",
      source.path, dangling_link_text(source.path), paths.index.string());
}

/// Throws Error if a key is set that prepared data does not use.
void require_prepared_keys(const SourceConfig& source) {
  const SourceConfig defaults;
  const auto require_default = [&](bool is_default, const char* key, const char* why) {
    if (is_default) return;
    throw Error("{} of the source {} is set, but {} is prepared data, {}; leave the key out", key,
                source.name, source.path, why);
  };
  require_default(source.dtype == defaults.dtype, "dtype", "which says it itself");
  require_default(source.end_of_document == defaults.end_of_document, "end_of_document",
                  "whose documents end with it");
  require_default(source.held_out == defaults.held_out, "held_out",
                  "whose held-out part `prepare --held-out` has chosen");
  require_default(source.seed == defaults.seed, "seed", "which `prepare --seed` has permuted");
}

/// The division of a stream of tokens into instances.
struct DirectOptions {
  int64_t context = 0;
  /// The fraction of the instances to hold out (see count_held_out()). 1 holds out all of them.
  double held_out = 0;
  uint64_t seed = 0;  // the seed of the permutations
};

/// A source of instances directly from token files. The stream is cut every `context` tokens.
/// Tokens at its end that are too few for an instance are left out. The instances are permuted by
/// the seed, and the held-out split is the end of that order. `prepare` gives the same order for an
/// equal stream and seed. The training split has it in the first epoch and a new permutation in
/// each later one. No order is stored.
class DirectSource : public InstanceSource {
 public:
  /// `description` names the source in errors. Throws Error when the stream is shorter than one
  /// instance.
  DirectSource(StoredTokens tokens, const DirectOptions& options, std::string description)
      : tokens_(std::move(tokens)),
        options_(options),
        description_(std::move(description)),
        instances_(count_instances()),
        held_out_(options.held_out == 1 ? instances_
                                        : count_held_out(instances_, options.held_out)),
        order_(static_cast<uint64_t>(instances_), options.seed),
        fingerprint_(
            hash_text(hash(fmt::format("{} {} {} {}", hash_text(tokens_.sampled_hash()),
                                       options.context, options.held_out, options.seed)))) {}

  int64_t context() const override { return options_.context; }
  int64_t instances(Split split) const override {
    return split == Split::train ? instances_ - held_out_ : held_out_;
  }

  void read(Split split, int64_t epoch, int64_t instance,
            std::span<int32_t> tokens) const override {
    TESSERA_CHECK(static_cast<int64_t>(tokens.size()) == options_.context,
                  "{} tokens for an instance of {}", tokens.size(), options_.context);
    tokens_.read(first_token(split, epoch, instance), tokens);
  }

  void will_need(Split split, int64_t epoch, int64_t instance) const override {
    tokens_.will_need(first_token(split, epoch, instance), options_.context);
  }

  std::string location(Split split, int64_t epoch, int64_t instance, int64_t token) const override {
    return tokens_.location({first_token(split, epoch, instance).value + token});
  }

  std::string fingerprint() const override { return fingerprint_; }
  std::string description() const override { return description_; }

 private:
  int64_t count_instances() const {
    if (tokens_.tokens() < options_.context) {
      throw Error("{} holds {} tokens, fewer than the context of {}; choose a shorter context",
                  description_, tokens_.tokens(), options_.context);
    }
    return tokens_.tokens() / options_.context;
  }

  /// Returns the stream index of an instance's first token. From the second epoch on, each epoch
  /// permutes the training split first. Then `order_` permutes all instances: the training split is
  /// its beginning, the held-out split its end.
  StreamIndex first_token(Split split, int64_t epoch, int64_t instance) const {
    TESSERA_CHECK(instance >= 0 && instance < instances(split), "instance {} of {}", instance,
                  instances(split));
    auto index = static_cast<uint64_t>(instance);
    if (split == Split::held_out) {
      index += static_cast<uint64_t>(instances(Split::train));
    } else if (epoch > 0) {
      const uint64_t seed =
          CounterRandom(options_.seed, "epoch").bits(static_cast<uint64_t>(epoch));
      index = Permutation(static_cast<uint64_t>(instances(Split::train)), seed)(index);
    }
    return {static_cast<int64_t>(order_(index)) * options_.context};
  }

  StoredTokens tokens_;
  DirectOptions options_;
  std::string description_;
  int64_t instances_;
  int64_t held_out_;
  Permutation order_;
  std::string fingerprint_;
};

/// Returns the tokenizer of a prepared folder.
DataTokenizer tokenizer_of(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  for (TokenizerFileHash& file : manifest.tokenizer_files) {
    // A manifest of version 1 has no hashes of the tokenizer's files.
    if (manifest.version == 1) file.hash = hash_text(hash(read_file(folder / file.name)));
  }
  return {.fingerprint = manifest.tokenizer_fingerprint,
          .ids = {manifest.vocabulary_size, manifest.end_of_document},
          .origin = folder.string(),
          .files = manifest.tokenizer_files};
}

StoredTokens open_megatron_source(const SourceConfig& source, DocumentEnds ends,
                                  const TokenIdRange& ids) {
  if (source.dtype != TokenFileType::header) {
    throw Error(
        "dtype of the source {} is set, but {} is a Megatron dataset, whose index says it; leave "
        "the key out",
        source.name, source.path);
  }
  return open_megatron(source.path, ends, ids);
}

std::shared_ptr<const InstanceSource> open_source(const SourceConfig& source, int64_t context,
                                                  const DataTokenizer& tokenizer) {
  const SourceFormat format = format_of(source);
  if (format == SourceFormat::prepared) {
    require_prepared_keys(source);
    const DataTokenizer found = tokenizer_of(source.path);
    if (found.fingerprint != tokenizer.fingerprint) {
      throw Error(
          "{} was prepared with another tokenizer than that of {} ({} instead of {}); prepare it "
          "with `--tokenizer {}`",
          source.path, tokenizer.origin, found.fingerprint, tokenizer.fingerprint,
          tokenizer.origin);
    }
    verify_prepared_tokenizer(source.path, read_manifest(source.path));
    return open_prepared_source(source.path, context);
  }
  if (context < 2) {
    throw Error("a context of {} has no token to predict; expected at least 2", context);
  }
  const DocumentEnds ends = source.end_of_document;
  // The word "header" is no TokenType, so open_token_files() gets no type then.
  StoredTokens tokens =
      format == SourceFormat::megatron
          ? open_megatron_source(source, ends, tokenizer.ids)
          : open_token_files(source.path, value_of_word<TokenType>(word(source.dtype)), ends,
                             tokenizer.ids);
  return std::make_shared<const DirectSource>(
      std::move(tokens), DirectOptions{context, source.held_out, source.seed}, source.path);
}

}  // namespace

std::string source_name(const SourceConfig& source) {
  return source.name.empty() ? name_of_path(source.path) : source.name;
}

std::vector<SourceConfig> named_sources(const DataConfig& config) {
  std::vector<SourceConfig> sources = config.sources;
  if (sources.empty())
    sources.push_back({.path = config.directory, .format = SourceFormat::prepared});
  std::set<std::string> names;
  for (SourceConfig& source : sources) {
    if (source.path.empty()) throw Error("one of [[data.sources]] has no path; give it one");
    source.name = source_name(source);
    require_valid_name(source.name);
    if (!names.insert(source.name).second) {
      throw Error("two sources of [[data.sources]] are named \"{}\"; give each a name of its own",
                  source.name);
    }
  }
  return sources;
}

std::optional<DataTokenizer> find_tokenizer(const DataConfig& config) {
  if (!config.tokenizer.empty()) {
    const auto tokenizer = load_tokenizer(config.tokenizer);
    return DataTokenizer{.fingerprint = tokenizer->fingerprint(),
                         .ids = {tokenizer->vocabulary_size(), tokenizer->end_of_document()},
                         .origin = config.tokenizer,
                         .files = tokenizer->file_hashes()};
  }
  for (const SourceConfig& source : named_sources(config)) {
    if (is_glob(source.path)) continue;
    if (path_exists(fs::path(source.path) / kManifestName)) return tokenizer_of(source.path);
  }
  return std::nullopt;
}

DataTokenizer require_tokenizer(const DataConfig& config) {
  const std::optional<DataTokenizer> tokenizer = find_tokenizer(config);
  if (tokenizer) return *tokenizer;
  if (config.sources.empty()) read_manifest(config.directory);  // its error says what is missing
  throw Error(
      "no source of [[data.sources]] is prepared data, which would say its tokenizer; set "
      "data.tokenizer to the one that the token files were made with");
}

TrainingData open_data(const DataConfig& config) {
  return open_data(config, require_tokenizer(config));
}

TrainingData open_data(const DataConfig& config, const DataTokenizer& tokenizer) {
  TrainingData data{tokenizer, {}};
  for (const SourceConfig& source : named_sources(config)) {
    data.sources.push_back(
        {source.name, source.weight, open_source(source, config.context, tokenizer)});
  }
  return data;
}

TrainingData open_held_out_data(const SourceConfig& source, int64_t context,
                                const std::string& tokenizer) {
  DataConfig config{.directory = "", .tokenizer = tokenizer, .sources = {source}};
  config.context = longest_context(config.sources, context);
  if (format_of(source) != SourceFormat::prepared) config.sources.front().held_out = 1;
  return open_data(config);
}

int64_t longest_context(const std::vector<SourceConfig>& sources, int64_t wanted) {
  for (const SourceConfig& source : sources) {
    if (format_of(source) != SourceFormat::prepared) continue;
    wanted = std::min(wanted, read_manifest(source.path).recipe.context);
  }
  return wanted;
}

}  // namespace tessera
