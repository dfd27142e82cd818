#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

namespace tessera {

class MemoryPool;

/// Which kernels run: the fast ones, or the plain loops that define each operation (always used for
/// f64).
enum class Kernels { fast, plain };

/// What a rank brings to the running of operations: threads, memory and caches. Nothing here is
/// global, so that ranks can be threads of one process.
class Context {
 public:
  /// A context that only plans has no pool.
  explicit Context(int threads, Kernels kernels = Kernels::fast, MemoryPool* pool = nullptr)
      : threads_(threads), kernels_(kernels), pool_(pool) {}

  int threads() const { return threads_; }
  Kernels kernels() const { return kernels_; }
  MemoryPool& pool() const { return *pool_; }

  /// The rank's one object of a type, made at first use: for example the cache of oneDNN's
  /// primitives.
  template <typename Cache>
  Cache& cache() {
    std::shared_ptr<void>& slot = caches_[std::type_index(typeid(Cache))];
    if (!slot) slot = std::make_shared<Cache>();
    return *static_cast<Cache*>(slot.get());
  }

 private:
  int threads_;
  Kernels kernels_;
  MemoryPool* pool_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> caches_;
};

}  // namespace tessera
