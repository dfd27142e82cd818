#include "data/shards/recipe.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Calls visit(key, field) for each field of a recipe but the inputs. The keys are those in JSON.
template <typename AnyRecipe, typename Visit>
void visit_fields(AnyRecipe& recipe, Visit&& visit) {
  visit("context", recipe.context);
  visit("seed", recipe.seed);
  visit("held_out_fraction", recipe.held_out_fraction);
  visit("shard_tokens", recipe.shard_tokens);
  visit("item_bytes", recipe.item_bytes);
  visit("text_field", recipe.text_field);
  visit("tokenizer", recipe.tokenizer);
  visit("tokenizer_fingerprint", recipe.tokenizer_fingerprint);
  visit("beginning_of_document", recipe.beginning_of_document);
  visit("trained_vocabulary_size", recipe.trained_vocabulary_size);
  visit("trained_sample_bytes", recipe.trained_sample_bytes);
}

OrderedJson to_json(const Recipe& recipe) {
  OrderedJson json;
  visit_fields(recipe, [&](const char* key, const auto& field) { json[key] = field; });
  OrderedJson inputs = OrderedJson::array();
  for (const CorpusFile& file : recipe.inputs) {
    inputs.push_back({{"path", file.path.string()},
                      {"bytes", file.size},
                      {"modified", file.modified},
                      {"format", file.format == Format::jsonl ? "jsonl" : "text"},
                      {"compression", word(file.compression)}});
  }
  json["inputs"] = std::move(inputs);
  return json;
}

std::string describe_input(const CorpusFile& file) {
  return fmt::format("{} ({} bytes, modified {})", file.path.string(), file.size, file.modified);
}

std::string input_difference(const std::vector<CorpusFile>& stored,
                             const std::vector<CorpusFile>& current) {
  const auto [stored_file, current_file] = std::ranges::mismatch(stored, current);
  if (stored_file != stored.end() && current_file != current.end()) {
    return fmt::format("inputs: {} there, {} now", describe_input(*stored_file),
                       describe_input(*current_file));
  }
  if (stored_file != stored.end())
    return fmt::format("inputs: {} there, not now", describe_input(*stored_file));
  if (current_file != current.end())
    return fmt::format("inputs: {} now, not there", describe_input(*current_file));
  return "";
}

Compression compression_named(const std::string& name, const std::string& origin) {
  const std::optional<Compression> found = value_of_word<Compression>(name);
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
    visit_fields(recipe, [&](const std::string& key, auto& field) {
      // Recipes of earlier versions lack this key; no token was put before documents then.
      if (key == "beginning_of_document" && !json.contains(key)) return;
      json.at(key).get_to(field);
    });
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

std::vector<std::string> recipe_differences(const Recipe& stored, const Recipe& current) {
  std::vector<std::string> differences;
  // Bytes that are not UTF-8 are replaced in a stored recipe, so they are replaced here too.
  const Recipe reread = recipe_from_text(recipe_to_text(current), "the recipe");
  const OrderedJson stored_json = to_json(stored);
  const OrderedJson current_json = to_json(reread);
  for (const auto& [key, value] : stored_json.items()) {
    if (key == "inputs" || value == current_json.at(key)) continue;
    differences.push_back(
        fmt::format("{}: {} there, {} now", key, value.dump(), current_json.at(key).dump()));
  }
  const std::string inputs = input_difference(stored.inputs, reread.inputs);
  if (!inputs.empty()) differences.push_back(inputs);
  return differences;
}

}  // namespace tessera
