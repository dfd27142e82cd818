#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/hugging_face/read_config.h"
#include "checkpoint/hugging_face/weight_map.h"
#include "checkpoint/safetensors_writer.h"
#include "support/save_tensors.h"

namespace tessera::testing {

/// The config.json of a small mixture of experts.
inline nlohmann::json small_olmoe_config() {
  return {{"architectures", {"OlmoeForCausalLM"}},
          {"model_type", "olmoe"},
          {"vocab_size", 300},
          {"hidden_size", 16},
          {"intermediate_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 2},
          {"num_experts", 3},
          {"num_experts_per_tok", 2},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"eos_token_id", 256},
          {"pad_token_id", nullptr},
          {"output_router_logits", true},
          {"tie_word_embeddings", false},
          {"hidden_act", "silu"}};
}

/// The config.json of a small dense model with the rotary embedding of Llama 3.1.
inline nlohmann::json small_llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}}};
}

/// A model of transformers that a test makes, changes and writes.
class HuggingFaceFolder {
 public:
  HuggingFaceFolder(fs::path path, nlohmann::json config, DType dtype,
                    hugging_face::ExpertNaming naming = hugging_face::ExpertNaming::single)
      : path_(std::move(path)), config_(std::move(config)) {
    const auto read = hugging_face::read_config(config_.dump(), "config.json");
    for (const auto& [name, shape] :
         hugging_face::weight_map(*read.architecture, read.model, naming).tensors) {
      add(name, shape, dtype);
    }
  }

  const fs::path& path() const { return path_; }
  nlohmann::json& config() { return config_; }

  /// Adds or replaces a tensor of small random numbers.
  Tensor add(const std::string& name, const Shape& shape, DType dtype) {
    const CounterRandom random(3, name);
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(0.1 * random.normal(i));
    }
    Item& item = items_[name];
    item.memory.resize(values.size() * static_cast<size_t>(dtype_size(dtype)));
    item.tensor = Tensor::wrap(item.memory.data(), shape, dtype);
    convert(Tensor::wrap(values.data(), shape, DType::f32), item.tensor);
    return item.tensor;
  }
  const Tensor& tensor(const std::string& name) const { return items_.at(name).tensor; }
  void remove(const std::string& name) { items_.erase(name); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, item] : items_) names.push_back(name);
    return names;
  }

  /// config.json and model.safetensors.
  void write() const {
    write_config();
    write_file_of("model.safetensors", names());
  }

  /// config.json, `count` shards with equal numbers of tensors, and their index.
  nlohmann::json write_shards(size_t count) const {
    write_config();
    const std::vector<std::string> all = names();
    nlohmann::json weights;
    int64_t total = 0;
    for (size_t shard = 0; shard < count; ++shard) {
      std::vector<std::string> part;
      for (size_t i = shard; i < all.size(); i += count) {
        part.push_back(all[i]);
        total += tensor(all[i]).bytes();
        weights[all[i]] = shard_name(shard, count);
      }
      write_file_of(shard_name(shard, count), part);
    }
    nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", weights}};
    write_index(index);
    return index;
  }
  void write_index(const nlohmann::json& index) const {
    write_file(path_ / "model.safetensors.index.json", index.dump());
  }
  void write_file_of(const std::string& file, const std::vector<std::string>& tensors) const {
    std::vector<SafetensorsItem> items;
    for (const std::string& name : tensors) items.push_back({name, tensor(name)});
    write_safetensors(path_ / file, items, {{"format", "pt"}});
  }
  static std::string shard_name(size_t index, size_t count) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
  }

 private:
  struct Item {
    std::vector<std::byte> memory;
    Tensor tensor;
  };

  void write_config() const {
    fs::create_directories(path_);
    write_file(path_ / "config.json", config_.dump(2));
  }

  fs::path path_;
  nlohmann::json config_;
  std::map<std::string, Item> items_;
};

}  // namespace tessera::testing
