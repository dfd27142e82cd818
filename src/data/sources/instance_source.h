#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/shards/manifest.h"

namespace tessera {

/// A source of instances: tokens that are cut into rows of one length, the context. Each instance
/// belongs to the training split or to the held-out split. In each epoch the instances of a split
/// have an order, and an instance is named by its index in it. Training data are the shards that
/// `prepare` wrote (data/shards/split_reader.cpp), or token files as they are
/// (data/sources/open_data.cpp). Reading is const and may be done by many threads.
class InstanceSource {
 public:
  virtual ~InstanceSource() = default;

  virtual int64_t context() const = 0;  // tokens per instance
  /// Returns the number of instances per epoch; 0 if the split is empty.
  virtual int64_t instances(Split split) const = 0;
  /// Reads the instance at index `instance` of an epoch's order into `tokens` [context]. Throws
  /// Error naming the file and the position in it when the file cannot be read or is damaged, or a
  /// token is outside the tokenizer's vocabulary.
  virtual void read(Split split, int64_t epoch, int64_t instance,
                    std::span<int32_t> tokens) const = 0;
  /// Asks the system to read this instance ahead. A source may ignore it.
  virtual void will_need(Split split, int64_t epoch, int64_t instance) const = 0;
  /// Returns, for errors, the file that has token number `token` of the instance, and the token's
  /// position in that file.
  virtual std::string location(Split split, int64_t epoch, int64_t instance,
                               int64_t token) const = 0;
  /// Returns a text that identifies the training split, including its order. Token files are
  /// identified by samples of their bytes.
  virtual std::string fingerprint() const = 0;
  /// Returns the name of the source in errors: a path.
  virtual std::string description() const = 0;
};

}  // namespace tessera
