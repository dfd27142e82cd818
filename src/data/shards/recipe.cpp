#include "data/shards/recipe.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const Recipe& recipe) {
  OrderedJson inputs = OrderedJson::array();
  for (const CorpusFile& file : recipe.inputs) {
    inputs.push_back({{"path", file.path.string()},
                      {"bytes", file.size},
                      {"modified", file.modified},
                      {"format", file.format == Format::jsonl ? "jsonl" : "text"},
                      {"compression", word(file.compression)}});
  }
  return {{"context", recipe.context},
          {"seed", recipe.seed},
          {"held_out_fraction", recipe.held_out_fraction},
          {"shard_tokens", recipe.shard_tokens},
          {"item_bytes", recipe.item_bytes},
          {"text_field", recipe.text_field},
          {"tokenizer", recipe.tokenizer},
          {"tokenizer_fingerprint", recipe.tokenizer_fingerprint},
          {"beginning_of_document", recipe.beginning_of_document},
          {"trained_vocabulary_size", recipe.trained_vocabulary_size},
          {"trained_sample_bytes", recipe.trained_sample_bytes},
          {"inputs", std::move(inputs)}};
}

std::string describe(const CorpusFile& file) {
  return fmt::format("{} ({} bytes, modified {})", file.path.string(), file.size, file.modified);
}

std::string input_difference(const std::vector<CorpusFile>& there,
                             const std::vector<CorpusFile>& now) {
  const auto [left, right] = std::mismatch(there.begin(), there.end(), now.begin(), now.end());
  if (left != there.end() && right != now.end()) {
    return fmt::format("inputs: {} there, {} now", describe(*left), describe(*right));
  }
  if (left != there.end()) return fmt::format("inputs: {} there, not now", describe(*left));
  if (right != now.end()) return fmt::format("inputs: {} now, not there", describe(*right));
  return "";
}

Compression compression_named(const std::string& name, const std::string& origin) {
  const std::optional<Compression> found = find_word<Compression>(name);
  if (found) return *found;
  throw Error("{} names the unknown compression '{}'; it is damaged or of a later version", origin,
              name);
}

}  // namespace

std::string recipe_to_text(const Recipe& recipe) {
  // A path may contain bytes that are not UTF-8. They are replaced, as the path is only compared.
  return to_json(recipe).dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

Recipe recipe_from_text(const std::string& text, const std::string& origin) {
  Recipe recipe;
  try {
    const OrderedJson json = OrderedJson::parse(text);
    json.at("context").get_to(recipe.context);
    json.at("seed").get_to(recipe.seed);
    json.at("held_out_fraction").get_to(recipe.held_out_fraction);
    json.at("shard_tokens").get_to(recipe.shard_tokens);
    json.at("item_bytes").get_to(recipe.item_bytes);
    json.at("text_field").get_to(recipe.text_field);
    json.at("tokenizer").get_to(recipe.tokenizer);
    json.at("tokenizer_fingerprint").get_to(recipe.tokenizer_fingerprint);
    recipe.beginning_of_document = json.value("beginning_of_document", "");
    json.at("trained_vocabulary_size").get_to(recipe.trained_vocabulary_size);
    json.at("trained_sample_bytes").get_to(recipe.trained_sample_bytes);
    for (const OrderedJson& input : json.at("inputs")) {
      const bool jsonl = input.at("format") == "jsonl";
      recipe.inputs.push_back({input.at("path").get<std::string>(), input.at("bytes"),
                               input.at("modified"), jsonl ? Format::jsonl : Format::text,
                               compression_named(input.value("compression", "none"), origin)});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error("{} is damaged ({}); prepare the data again in another folder, or overwrite it",
                origin, error.what());
  }
  return recipe;
}

std::vector<std::string> recipe_differences(const Recipe& there, const Recipe& current) {
  std::vector<std::string> differences;
  const Recipe now = recipe_from_text(recipe_to_text(current), "the recipe");  // as if stored
  const OrderedJson left = to_json(there);
  const OrderedJson right = to_json(now);
  for (const auto& [key, value] : left.items()) {
    if (key == "inputs" || value == right.at(key)) continue;
    differences.push_back(
        fmt::format("{}: {} there, {} now", key, value.dump(), right.at(key).dump()));
  }
  const std::string inputs = input_difference(there.inputs, now.inputs);
  if (!inputs.empty()) differences.push_back(inputs);
  return differences;
}

}  // namespace tessera
