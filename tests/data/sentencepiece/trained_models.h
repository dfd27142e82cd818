#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <rapidcheck.h>

#include "data/sentencepiece/models.h"
#include "data/utf8_text.h"

namespace tessera::testing {

inline const TrainerSettings kPlain = {{"normalization_rule_name", "identity"},
                                       {"add_dummy_prefix", "false"},
                                       {"remove_extra_whitespaces", "false"}};

inline TrainerSettings with(TrainerSettings settings, const TrainerSettings& more) {
  settings.insert(more.begin(), more.end());
  return settings;
}

/// What SentencePiece models in use look like, and rarer settings.
inline const std::map<std::string, TrainerSettings>& settings_by_name() {
  static const std::map<std::string, TrainerSettings> all = {
      {"unigram", {{"model_type", "unigram"}, {"vocab_size", "500"}}},
      {"unigram with bytes", with(kPlain, {{"model_type", "unigram"},
                                           {"vocab_size", "700"},
                                           {"byte_fallback", "true"},
                                           {"character_coverage", "0.98"},
                                           {"user_defined_symbols", "<x>,東京,the q"},
                                           {"control_symbols", "<cls>,i"}})},
      {"unigram with spaces after words",
       {{"model_type", "unigram"},
        {"vocab_size", "500"},
        {"treat_whitespace_as_suffix", "true"},
        {"normalization_rule_name", "nfkc_cf"}}},
      {"unigram over spaces",
       {{"model_type", "unigram"},
        {"vocab_size", "600"},
        {"split_by_whitespace", "false"},
        {"character_coverage", "0.98"},
        {"normalization_rule_name", "nmt_nfkc_cf"}}},
      {"bpe with bytes", with(kPlain, {{"model_type", "bpe"},
                                       {"vocab_size", "700"},
                                       {"byte_fallback", "true"},
                                       {"split_digits", "true"},
                                       {"allow_whitespace_only_pieces", "true"}})},
      {"bpe with symbols",
       {{"model_type", "bpe"},
        {"vocab_size", "600"},
        {"remove_extra_whitespaces", "false"},
        {"user_defined_symbols",
         "<x>,\xE2\x96\x81\xE2\x96\x81,\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81,caf,fe"},
        {"normalization_rule_name", "nfkc"}}},
      {"bpe with spaces after words",
       {{"model_type", "bpe"},
        {"vocab_size", "500"},
        {"treat_whitespace_as_suffix", "true"},
        {"normalization_rule_name", "nmt_nfkc"}}},
      {"bpe of the library", with(kPlain, {{"model_type", "bpe"}, {"vocab_size", "500"}})},
      {"characters", {{"model_type", "char"}, {"vocab_size", "400"}}},
      {"words", {{"model_type", "word"}, {"vocab_size", "400"}, {"byte_fallback", "true"}}},
      {"bpe over spaces",
       {{"model_type", "bpe"},
        {"vocab_size", "500"},
        {"character_coverage", "0.98"},
        {"split_by_whitespace", "false"},
        {"split_by_unicode_script", "false"}}},
  };
  return all;
}

/// The model of which only the library encodes: it takes such pieces apart again.
inline std::string with_pieces_out_of_use(const std::string& model) {
  SentencePieceDescription description = read_sentencepiece_description(model, "a model");
  for (size_t id = 10; id < description.pieces.size(); id += 5) {
    SentencePiece& piece = description.pieces[id];
    if (piece.text.size() > 2) piece.type = PieceType::unused;
  }
  return model_file(description);
}

inline BothEncoders& both(const std::string& name) {
  static std::map<std::string, BothEncoders> all;
  const auto found = all.find(name);
  if (found != all.end()) return found->second;
  std::string model = train_model(settings_by_name().at(name));
  if (name == "bpe of the library") model = with_pieces_out_of_use(model);
  return all.try_emplace(name, model).first->second;
}

/// Words that the models have met, in parts, beside text of any kind, broken UTF-8 included.
inline rc::Gen<std::string> mixed_text() {
  static const std::vector<std::string> lines = mixed_lines();
  const auto part =
      rc::gen::map(rc::gen::tuple(rc::gen::inRange<size_t>(0, lines.size()),
                                  rc::gen::inRange<size_t>(0, 60), rc::gen::inRange<size_t>(0, 20)),
                   [](const std::tuple<size_t, size_t, size_t>& drawn) {
                     const std::string& line = lines[std::get<0>(drawn)];
                     return line.substr(std::get<1>(drawn) % line.size(), std::get<2>(drawn));
                   });
  const auto spaces = rc::gen::element<std::string>(" ", "  ", "   ", "\xE2\x96\x81", "\t", "<x>",
                                                    "<s>", "\xE3\x80\x80", "\xCC\x81");
  const auto parts =
      rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(part, spaces, any_text()));
  return rc::gen::map(parts, [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) text += one;
    return text;
  });
}

inline std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, settings] : settings_by_name()) names.push_back(name);
  return names;
}

inline std::string name_of_test(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// Pieces of a few characters, often with equal scores, so that ties decide.
inline SentencePieceDescription any_description(SentencePieceAlgorithm algorithm) {
  SentencePieceDescription description = bare_description(*rc::gen::arbitrary<bool>());
  description.algorithm = algorithm;
  description.adds_dummy_space = *rc::gen::arbitrary<bool>();
  description.removes_extra_whitespace = *rc::gen::arbitrary<bool>();
  description.escapes_whitespace = *rc::gen::arbitrary<bool>();
  description.whitespace_as_suffix = *rc::gen::arbitrary<bool>();
  const auto character = rc::gen::element<std::string>("a", "b", "c", "é", "\xE2\x96\x81", " ");
  const auto pieces = *rc::gen::container<std::set<std::string>>(
      rc::gen::map(rc::gen::resize(5, rc::gen::container<std::vector<std::string>>(character)),
                   [](const std::vector<std::string>& all) {
                     std::string text = "a";
                     if (!all.empty()) text.clear();
                     for (const std::string& one : all) text += one;
                     return text;
                   }));
  const bool bpe = algorithm == SentencePieceAlgorithm::bpe;
  for (const std::string& text : pieces) {
    const float score = *rc::gen::element<float>(-1, -1, -2, -2.1F, -3, -3.7F, -5);
    const auto type = *rc::gen::element(PieceType::normal, PieceType::normal, PieceType::normal,
                                        PieceType::normal, PieceType::user_defined,
                                        bpe ? PieceType::normal : PieceType::unused);
    description.pieces.push_back({text, score, type});
  }
  description.pieces.push_back({"zz", -4, PieceType::normal});
  return description;
}

inline std::string text_of_few_characters() {
  const auto character = rc::gen::element<std::string>("a", "b", "c", "é", "\xE2\x96\x81", " ", "d",
                                                       "ü", "z", "\xC3", "😀");
  std::string text;
  for (const std::string& one :
       *rc::gen::resize(300, rc::gen::container<std::vector<std::string>>(character))) {
    text += one;
  }
  return text;
}

}  // namespace tessera::testing
