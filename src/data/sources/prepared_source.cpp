#include "data/sources/prepared_source.h"

#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "data/shards/split_reader.h"

namespace tessera {
namespace {

class PreparedSource : public InstanceSource {
 public:
  PreparedSource(const fs::path& folder, int64_t context)
      : folder_(folder), train_(folder, Split::train, context) {
    if (train_.manifest().held_out.instances > 0) {
      held_out_.emplace(folder, Split::held_out, train_.context());
    }
  }

  int64_t context() const override { return train_.context(); }

  int64_t instances(Split split) const override {
    if (split == Split::train) return train_.instances();
    return held_out_ ? held_out_->instances() : 0;
  }

  void read(Split split, int64_t /*epoch*/, int64_t instance,
            std::span<int32_t> tokens) const override {
    reader(split).read(instance, tokens);
  }

  void will_need(Split split, int64_t /*epoch*/, int64_t instance) const override {
    reader(split).will_need(instance);
  }

  std::string location(Split split, int64_t /*epoch*/, int64_t instance,
                       int64_t token) const override {
    return reader(split).location(instance, token);
  }

  std::string fingerprint() const override {
    std::string text = train_.manifest().tokenizer_fingerprint;
    for (const Shard& shard : train_.manifest().train.shards) text += shard.hash;
    return hash_text(hash(text));
  }

  std::string description() const override { return folder_.string(); }

 private:
  const SplitReader& reader(Split split) const {
    TESSERA_CHECK(split == Split::train || held_out_, "{} has no held-out data", folder_.string());
    return split == Split::train ? train_ : *held_out_;
  }

  fs::path folder_;
  SplitReader train_;
  std::optional<SplitReader> held_out_;
};

}  // namespace

std::unique_ptr<InstanceSource> open_prepared_source(const fs::path& folder, int64_t context) {
  return std::make_unique<PreparedSource>(folder, context);
}

}  // namespace tessera
