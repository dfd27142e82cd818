#include "data/bpe/byte_level_bpe_tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "data/bpe/end_of_document.h"
#include "data/bpe/token_spelling.h"
#include "data/bpe/tokenizer_json.h"

// encode() takes a whole text through the stages of BpeStages at once. The encoder of
// document_encoder() does so piece by piece (bpe_document_encoder.cpp).

namespace tessera {
namespace {

/// Returns the id of the end-of-document token. Throws Error when there is no such token.
int32_t end_id(const BpeDescription& description, const std::string& content,
               const std::string& origin) {
  if (const auto id = token_id(description, content)) return *id;
  throw Error("{} has no token {} that could end a document; name another with --end-of-document",
              origin, in_quotes(content));
}

/// Returns a hash of all that decides encodings. It does not depend on how the file was written.
std::string fingerprint_of(const BpeDescription& description, int32_t end_of_document) {
  std::string all;
  const auto add_number = [&](int64_t number) { all += fmt::format("{};", number); };
  const auto add_text = [&](std::string_view text) {
    add_number(static_cast<int64_t>(text.size()));
    all += text;
  };
  for (const int64_t number :
       {int64_t{end_of_document}, int64_t{description.ignores_merges},
        int64_t{description.normalizes_nfc}, int64_t{description.adds_prefix_space},
        static_cast<int64_t>(description.vocabulary.size()),
        static_cast<int64_t>(description.merges.size()),
        static_cast<int64_t>(description.splits.size())}) {
    add_number(number);
  }
  for (const auto& [symbols, id] : description.vocabulary) {
    add_text(symbols);
    add_number(id);
  }
  for (const auto& [left, right] : description.merges) {
    add_text(left);
    add_text(right);
  }
  for (const SplitStep& step : description.splits) {
    add_text(step.pattern);
    add_number(step.keeps_gaps ? 1 : 0);
  }
  for (const AddedToken& token : description.added_tokens) {
    add_text(token.content);
    for (const int32_t number :
         {token.id, int32_t{token.special}, int32_t{token.single_word}, int32_t{token.strip_left},
          int32_t{token.strip_right}, int32_t{token.normalized}}) {
      add_number(number);
    }
  }
  if (description.byte_fallback) add_text("byte_fallback");
  return hash_text(hash(all));
}

}  // namespace

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(const BpeDescription& description,
                                             const std::string& end_of_document,
                                             std::vector<TokenizerFile> files,
                                             const std::string& origin)
    : files_(std::move(files)),
      end_of_document_(end_id(description, end_of_document, origin)),
      fingerprint_(fingerprint_of(description, end_of_document_)),
      kind_(description.byte_fallback ? "BPE with byte fallback" : "byte-level BPE"),
      stages_(description, end_of_document_, origin) {
  if (stages_.model.text_may_become(end_of_document_)) {
    throw Error(
        "{}: text can become the token {}, so that it cannot end a document; name another with "
        "--end-of-document",
        origin, in_quotes(end_of_document));
  }
  read_texts(description, origin);
}

std::optional<int32_t> ByteLevelBpeTokenizer::control_token(std::string_view spelling) const {
  const auto found = control_tokens_.find(spelling);
  if (found == control_tokens_.end()) return std::nullopt;
  return found->second;
}

void ByteLevelBpeTokenizer::read_texts(const BpeDescription& description,
                                       const std::string& origin) {
  int32_t last_id = 0;
  for (const auto& [symbols, id] : description.vocabulary) last_id = std::max(last_id, id);
  for (const AddedToken& token : description.added_tokens) last_id = std::max(last_id, token.id);
  texts_.resize(static_cast<size_t>(last_id) + 1);
  std::vector<const std::string*> contents(texts_.size());  // by id
  for (const auto& [symbols, id] : description.vocabulary) {
    texts_[static_cast<size_t>(id)] = text_of_token(description, symbols);
    contents[static_cast<size_t>(id)] = &symbols;
  }
  std::vector<bool> added(texts_.size());
  for (const AddedToken& token : description.added_tokens) {
    const auto id = static_cast<size_t>(token.id);
    if (added[id] || (contents[id] != nullptr && *contents[id] != token.content)) {
      throw Error("{}: the id {} belongs to the added token {} and to {}; expected one token an id",
                  origin, id, in_quotes(token.content), in_quotes(*contents[id]));
    }
    // An added token of the vocabulary, such as a single byte, keeps the bytes that it spells.
    if (contents[id] == nullptr) {
      texts_[id] =
          description.byte_fallback ? text_of_token(description, token.content) : token.content;
    }
    if (token.special) {
      texts_[id].clear();
      control_tokens_.emplace(token.content, token.id);
    }
    added[id] = true;
    contents[id] = &token.content;
  }
  std::vector<std::pair<std::string, int32_t>> names;
  for (size_t id = 0; id < contents.size(); ++id) {
    if (contents[id] != nullptr) names.emplace_back(*contents[id], static_cast<int32_t>(id));
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names, {}, &std::pair<std::string, int32_t>::first);
  if (twice != names.end()) {
    throw Error("{}: the token {} has the ids {} and {}; expected one", origin,
                in_quotes(twice->first), twice->second, std::next(twice)->second);
  }
  texts_[static_cast<size_t>(end_of_document_)].clear();
}

std::unique_ptr<DocumentEncoder> ByteLevelBpeTokenizer::document_encoder() const {
  return make_bpe_document_encoder(stages_);
}

std::vector<int32_t> ByteLevelBpeTokenizer::encode(std::string_view text) const {
  // The pattern matcher is told not to check this itself.
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    throw Error("the text of {} bytes is not valid UTF-8, which the tokenizer takes; mend it",
                text.size());
  }
  const auto lease = scratch_.lease();
  Scratch& scratch = *lease;
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  const auto for_each_part = [&](const AddedTokenFinder& finder, std::string_view whole,
                                 const auto& encode_part) {
    if (finder.finds_nothing()) {
      encode_part(whole);
      return;
    }
    for (const AddedTokenPart& part : finder.find(whole, scratch.split)) {
      if (part.id != AddedTokenPart::kText) {
        tokens.push_back(part.id);
      } else {
        encode_part(whole.substr(part.range.begin, part.range.end - part.range.begin));
      }
    }
  };
  for_each_part(*stages_.raw_finder, text, [&](std::string_view part) {
    const std::string_view normalized =
        stages_.normalizer ? stages_.normalizer->normalize(part, scratch.normalized) : part;
    for_each_part(*stages_.normalized_finder, normalized,
                  [&](std::string_view plain) { encode_plain(plain, scratch, tokens); });
  });
  return tokens;
}

void ByteLevelBpeTokenizer::encode_plain(std::string_view text, Scratch& scratch,
                                         std::vector<int32_t>& tokens) const {
  // The library gives each part between added tokens a prefix space.
  if (stages_.adds_prefix_space && !text.empty() && !text.starts_with(' ')) {
    scratch.prefixed = ' ';
    scratch.prefixed += text;
    text = scratch.prefixed;
  }
  encode_split(text, 0, scratch, tokens);
}

void ByteLevelBpeTokenizer::encode_split(std::string_view text, size_t step, Scratch& scratch,
                                         std::vector<int32_t>& tokens) const {
  if (text.empty()) return;
  if (step == stages_.steps.size()) {
    stages_.model.encode(text, scratch.model, tokens);
    return;
  }
  size_t done = 0;
  while (done < text.size()) {
    const auto found = stages_.patterns[step].find(text, done, scratch.split);
    const TextRange match = found.value_or(TextRange{text.size(), text.size()});
    if (stages_.steps[step].keeps_gaps) {
      encode_split(text.substr(done, match.begin - done), step + 1, scratch, tokens);
    }
    encode_split(text.substr(match.begin, match.end - match.begin), step + 1, scratch, tokens);
    done = match.end;
  }
}

std::string ByteLevelBpeTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size()) {
      throw Error("token {} is outside the tokenizer's vocabulary of {}", token, vocabulary_size());
    }
    text += texts_[static_cast<size_t>(token)];
  }
  return text;
}

std::unique_ptr<Tokenizer> load_byte_level_bpe(const fs::path& path, std::string text,
                                               const nlohmann::json& json,
                                               const std::string& end_of_document) {
  const std::string origin = path.string();
  const BpeDescription description = read_tokenizer_json(json, origin);
  const fs::path folder = path.parent_path();
  const std::string end =
      end_of_document.empty() ? find_end_of_document(folder, description, origin) : end_of_document;
  const fs::path config = folder / kTokenizerConfigName;
  std::vector<TokenizerFile> files{{"tokenizer.json", std::move(text)}};
  files.push_back(
      {kTokenizerConfigName,
       with_end_of_document(path_exists(config) ? read_file(config) : "", end, config.string())});
  return std::make_unique<ByteLevelBpeTokenizer>(description, end, std::move(files), origin);
}

}  // namespace tessera
