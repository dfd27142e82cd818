#include "data/bpe/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

// Section wraps an object of the file and refuses unknown keys and wrong types. Each section
// (model, normalizer, ...) has a function that reads it or refuses what would change tokens.

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kTokenizerDepth = 16;
/// The largest id that is accepted. It is far above the largest vocabularies in use, of a quarter
/// of a million tokens. Without this limit, one hostile id could use up all memory.
constexpr int32_t kLargestId = (1 << 22) - 1;

/// The pattern that a ByteLevel pre-tokenizer splits by unless use_regex is false (GPT-2):
/// contractions, letters, digits, other characters, each after at most one space, and white space.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A JSON object of the file. It reads members by name, and its errors name their path in the file.
class Section {
 public:
  Section(const Json& json, std::string path, const std::string& origin)
      : json_(json), path_(std::move(path)), origin_(origin) {
    if (!json_.is_object()) refuse("", json_, "an object");
  }

  [[noreturn]] void refuse(const std::string& key, const Json& found,
                           std::string_view expected) const {
    std::string where = path_;
    if (!where.empty() && !key.empty()) where += '.';
    where += key;
    throw Error("{}: {} is {}; expected {}", origin_, where.empty() ? "the file's content" : where,
                printable(found.dump(-1, ' ', false, Json::error_handler_t::replace)), expected);
  }

  /// Refuses members with other names.
  void allow(std::span<const std::string_view> names) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::ranges::find(names, key) != names.end()) continue;
      throw Error("{}: {}{} has the key {}, which is not known; expected only {}", origin_, path_,
                  path_.empty() ? "the file" : "", in_quotes(key),
                  join(std::vector<std::string>(names.begin(), names.end()), ", "));
    }
  }

  /// Returns the member, or null if there is none.
  const Json& get(const std::string& key) const {
    static const Json none;
    const auto found = json_.find(key);
    return found == json_.end() ? none : *found;
  }

  std::string type() const { return text("type"); }

  std::string text(const std::string& key) const {
    const Json& value = get(key);
    if (!value.is_string()) refuse(key, value, "a text");
    return value.get<std::string>();
  }

  /// Returns `default_value`, if it is given, for a member that is missing or null.
  bool flag(const std::string& key, std::optional<bool> default_value = {}) const {
    const Json& value = get(key);
    if (value.is_null() && default_value) return *default_value;
    if (!value.is_boolean()) refuse(key, value, "true or false");
    return value.get<bool>();
  }

  int32_t id(const std::string& key) const { return id_of(key, get(key)); }

  int32_t id_of(const std::string& key, const Json& value) const {
    if (!value.is_number_integer() || value < 0 || value > kLargestId) {
      refuse(key, value, fmt::format("an id from 0 to {}", kLargestId));
    }
    return value.get<int32_t>();
  }

  const Json& list(const std::string& key) const {
    const Json& value = get(key);
    if (!value.is_array()) refuse(key, value, "a list");
    return value;
  }

  Section member(const std::string& key) const { return {get(key), inner(key), origin_}; }

  std::vector<Section> members(const std::string& key) const {
    std::vector<Section> parts;
    for (const Json& value : list(key)) {
      parts.emplace_back(value, fmt::format("{}[{}]", inner(key), parts.size()), origin_);
    }
    return parts;
  }

  /// Returns the parts of a Sequence, including those of nested Sequences, or this part itself.
  std::vector<Section> flattened(const std::string& list_key) const {
    if (type() != "Sequence") return {*this};
    allow(std::array<std::string_view, 2>{"type", list_key});
    std::vector<Section> parts;
    for (const Section& part : members(list_key)) {
      for (Section& inner : part.flattened(list_key)) parts.push_back(std::move(inner));
    }
    return parts;
  }

 private:
  std::string inner(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  const Json& json_;
  std::string path_;
  const std::string& origin_;
};

/// Returns the end of an error about a file with byte fallback: what is expected and what to do.
std::string with_byte_fallback(std::string_view expected) {
  return fmt::format(
      "{}, as Gemma has it: model.byte_fallback is true, and nothing else is supported beside it; "
      "give the tokenizer.model that the file was made from",
      expected);
}

Json replace_step(std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

/// Refuses all but the steps that write spaces as U+2581 and back. The pre-tokenizer of such files
/// splits at spaces. It does nothing, because the normalizer leaves no space.
void check_space_marks(const Section& file) {
  const auto require = [&](const std::string& key, const Json& known, std::string_view expected) {
    if (file.get(key) != known) file.refuse(key, file.get(key), with_byte_fallback(expected));
  };
  constexpr const char* kMark = "\u2581";
  require("normalizer", replace_step(" ", kMark), "a Replace of \" \" by \"\u2581\" alone");
  if (!file.get("pre_tokenizer").is_null()) {
    require("pre_tokenizer",
            {{"type", "Split"},
             {"pattern", {{"String", " "}}},
             {"behavior", "MergedWithPrevious"},
             {"invert", false}},
            "none, or a Split at \" \" that is MergedWithPrevious");
  }
  require(
      "decoder",
      {{"type", "Sequence"},
       {"decoders", {replace_step(kMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}},
      "a Sequence of a Replace of \"\u2581\" by \" \", ByteFallback and Fuse");
}

void read_normalizer(const Section& file, BpeDescription& description) {
  if (file.get("normalizer").is_null()) return;
  for (const Section& part : file.member("normalizer").flattened("normalizers")) {
    if (part.type() != "NFC") part.refuse("type", part.get("type"), "NFC, the only one supported");
    part.allow(std::array<std::string_view, 1>{"type"});
    description.normalizes_nfc = true;
  }
}

SplitStep read_split(const Section& part) {
  part.allow(std::array<std::string_view, 4>{"type", "pattern", "behavior", "invert"});
  const Section pattern = part.member("pattern");
  pattern.allow(std::array<std::string_view, 1>{"Regex"});
  const std::string behavior = part.text("behavior");
  const bool invert = part.flag("invert");
  // Matches are pieces. The text between them is either a piece too or removed.
  const bool isolated = behavior == "Isolated" && !invert;
  if (!isolated && !(behavior == "Removed" && invert)) {
    part.refuse("behavior", part.get("behavior"),
                fmt::format("Isolated (invert false) or Removed (invert true), the only ones "
                            "supported; invert is {}",
                            invert));
  }
  return {pattern.text("Regex"), isolated};
}

void read_pre_tokenizer(const Section& file, BpeDescription& description) {
  bool byte_level_seen = false;
  for (const Section& part : file.member("pre_tokenizer").flattened("pretokenizers")) {
    const std::string type = part.type();
    if (byte_level_seen) part.refuse("type", part.get("type"), "nothing after ByteLevel");
    if (type == "Split") {
      description.splits.push_back(read_split(part));
    } else if (type == "ByteLevel") {
      byte_level_seen = true;
      part.allow(
          std::array<std::string_view, 4>{"type", "add_prefix_space", "trim_offsets", "use_regex"});
      description.adds_prefix_space = part.flag("add_prefix_space");
      if (description.adds_prefix_space && !description.splits.empty()) {
        part.refuse("add_prefix_space", part.get("add_prefix_space"), "false after a Split");
      }
      if (part.flag("use_regex", true)) description.splits.push_back({kByteLevelPattern, true});
    } else {
      part.refuse("type", part.get("type"), "Split or ByteLevel, the only ones supported");
    }
  }
  if (!byte_level_seen) {
    const Section part = file.member("pre_tokenizer");
    part.refuse("type", part.get("type"), "a ByteLevel at the end");
  }
}

void check_post_processor(const Section& file) {
  if (file.get("post_processor").is_null()) return;
  for (const Section& part : file.member("post_processor").flattened("processors")) {
    const std::string type = part.type();
    if (type != "ByteLevel" && type != "TemplateProcessing") {
      part.refuse("type", part.get("type"), "ByteLevel or TemplateProcessing");
    }
  }
}

void check_decoder(const Section& file) {
  const auto parts = file.member("decoder").flattened("decoders");
  if (parts.size() != 1 || parts.front().type() != "ByteLevel") {
    file.refuse("decoder", file.get("decoder"), "one ByteLevel");
  }
}

/// Refuses members that change tokens if they are set.
void check_neutral(const Section& model) {
  const auto require = [&](const std::string& key, bool neutral, std::string_view expected) {
    if (!neutral) {
      model.refuse(key, model.get(key), fmt::format("{}; others are not supported", expected));
    }
  };
  const Json& dropout = model.get("dropout");
  require("dropout", dropout.is_null() || dropout == 0.0, "null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    require(key, model.get(key).is_null() || model.text(key).empty(), "null or an empty text");
  }
}

void read_vocabulary(const Section& model, BpeDescription& description) {
  const Json& vocabulary = model.get("vocab");
  if (!vocabulary.is_object()) model.refuse("vocab", vocabulary, "an object of tokens and ids");
  const Section ids = model.member("vocab");
  for (const auto& [token, id] : vocabulary.items()) {
    description.vocabulary.emplace_back(token, ids.id_of(token, id));
  }
  std::ranges::sort(description.vocabulary, {}, &std::pair<std::string, int32_t>::second);
  const auto twice = std::ranges::adjacent_find(description.vocabulary, std::ranges::equal_to(),
                                                &std::pair<std::string, int32_t>::second);
  if (twice != description.vocabulary.end()) {
    model.refuse("vocab", twice->second,
                 fmt::format("each id once, but {} and {} share it", in_quotes(twice->first),
                             in_quotes(std::next(twice)->first)));
  }
}

MergePair read_merge(const Section& model, const Json& merge, size_t index) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  model.refuse(fmt::format("merges[{}]", index), merge, "\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
}

void read_model(const Section& model, BpeDescription& description) {
  // Files from before the library had other models do not state the type.
  if (!model.get("type").is_null() && model.type() != "BPE") {
    model.refuse("type", model.get("type"), "BPE, the only one supported");
  }
  model.allow(std::array<std::string_view, 10>{
      "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
      "byte_fallback", "ignore_merges", "vocab", "merges"});
  check_neutral(model);
  description.ignores_merges = model.flag("ignore_merges", false);
  description.byte_fallback = model.flag("byte_fallback", false);
  if (description.byte_fallback && description.ignores_merges) {
    model.refuse("ignore_merges", model.get("ignore_merges"), with_byte_fallback("false"));
  }
  read_vocabulary(model, description);
  for (const Json& merge : model.list("merges")) {
    description.merges.push_back(read_merge(model, merge, description.merges.size()));
  }
}

void read_added_tokens(const Section& file, BpeDescription& description) {
  if (file.get("added_tokens").is_null()) return;
  for (const Section& part : file.members("added_tokens")) {
    part.allow(std::array<std::string_view, 7>{"id", "content", "single_word", "lstrip", "rstrip",
                                               "normalized", "special"});
    AddedToken token;
    token.id = part.id("id");
    token.content = part.text("content");
    if (token.content.empty()) part.refuse("content", part.get("content"), "a text");
    token.special = part.flag("special");
    token.single_word = part.flag("single_word");
    token.strip_left = part.flag("lstrip");
    token.strip_right = part.flag("rstrip");
    token.normalized = part.flag("normalized");
    description.added_tokens.push_back(std::move(token));
  }
}

/// Returns the type of a member, or "" if it has none.
std::string type_of(const Json& json) {
  if (!json.is_object()) return "";
  const auto type = json.find("type");
  return type != json.end() && type->is_string() ? type->get<std::string>() : "";
}

bool names_byte_level(const Json& json, const char* list_key) {
  if (type_of(json) == "ByteLevel") return true;
  if (type_of(json) != "Sequence") return false;
  const auto list = json.find(list_key);
  return list != json.end() && std::ranges::any_of(*list, [&](const Json& part) {
           return names_byte_level(part, list_key);
         });
}

}  // namespace

nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& origin) {
  return parse_strict_json(text, origin, kTokenizerDepth);
}

bool is_byte_level(const nlohmann::json& tokenizer) {
  if (!tokenizer.is_object()) return false;
  const auto names = [&](const char* key, const char* list_key) {
    const auto part = tokenizer.find(key);
    return part != tokenizer.end() && names_byte_level(*part, list_key);
  };
  return names("pre_tokenizer", "pretokenizers") || names("decoder", "decoders");
}

BpeDescription read_tokenizer_json(const nlohmann::json& tokenizer, const std::string& origin) {
  const Section file(tokenizer, "", origin);
  file.allow(std::array<std::string_view, 9>{"version", "truncation", "padding", "added_tokens",
                                             "normalizer", "pre_tokenizer", "post_processor",
                                             "decoder", "model"});
  BpeDescription description;
  read_model(file.member("model"), description);
  if (description.byte_fallback) {
    check_space_marks(file);
  } else {
    read_normalizer(file, description);
    read_pre_tokenizer(file, description);
    check_decoder(file);
  }
  check_post_processor(file);
  read_added_tokens(file, description);
  return description;
}

}  // namespace tessera
