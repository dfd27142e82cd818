#include "data/sources/direct_source.h"

#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "data/shards/gather.h"

namespace tessera {
namespace {

/// A source that cuts the token stream into instances of `context` tokens each.
class DirectSource : public InstanceSource {
 public:
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

}  // namespace

std::unique_ptr<InstanceSource> make_direct_source(StoredTokens tokens,
                                                   const DirectOptions& options,
                                                   std::string description) {
  return std::make_unique<DirectSource>(std::move(tokens), options, std::move(description));
}

}  // namespace tessera
