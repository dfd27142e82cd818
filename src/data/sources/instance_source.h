#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/shards/manifest.h"

namespace tessera {

/// Tokens cut into instances of one context length and shared out over two splits, in an order for
/// each epoch. Reading is const and may be done by many threads.
class InstanceSource {
 public:
  virtual ~InstanceSource() = default;

  /// Tokens of an instance.
  virtual int64_t context() const = 0;
  /// Instances of one epoch; 0 where the split is empty.
  virtual int64_t instances(Split split) const = 0;
  /// Reads the instance that comes at place `instance` of an epoch into `tokens` [context]. Throws
  /// Error naming the file and the place when the file cannot be read or is damaged, or a token
  /// lies outside the tokenizer's vocabulary.
  virtual void read(Split split, int64_t epoch, int64_t instance,
                    std::span<int32_t> tokens) const = 0;
  /// Asks the system to read this instance ahead of its use.
  virtual void will_need(Split split, int64_t epoch, int64_t instance) const = 0;
  /// Where a token of that instance stands, for errors: the file and a place in it.
  virtual std::string place(Split split, int64_t epoch, int64_t instance, int64_t token) const = 0;
  /// What tells the training split from any other, order included.
  virtual std::string fingerprint() const = 0;
  /// What errors call it: a path.
  virtual std::string description() const = 0;
};

}  // namespace tessera
