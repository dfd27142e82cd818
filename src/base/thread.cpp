#include "base/thread.h"

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

namespace tessera {
namespace {

constexpr size_t kLeastStackBytes = size_t{8} << 20;  // the usual stack of a main thread

/// The attributes of a new thread, destroyed with this object.
class ThreadAttributes {
 public:
  ThreadAttributes() { pthread_attr_init(&attributes_); }
  ThreadAttributes(const ThreadAttributes&) = delete;
  ThreadAttributes& operator=(const ThreadAttributes&) = delete;
  ~ThreadAttributes() { pthread_attr_destroy(&attributes_); }
  pthread_attr_t* get() { return &attributes_; }

 private:
  pthread_attr_t attributes_{};
};

/// Returns the size of a Thread's stack: kLeastStackBytes, or what other threads of this process
/// get if that is more.
size_t thread_stack_bytes() {
  ThreadAttributes usual;
  size_t bytes = 0;
  pthread_attr_getstacksize(usual.get(), &bytes);
  return std::max(kLeastStackBytes, bytes);
}

void* run_body(void* body) {
  (*static_cast<std::function<void()>*>(body))();
  return nullptr;
}

}  // namespace

Thread::Thread(std::function<void()> body)
    : body_(std::make_unique<std::function<void()>>(std::move(body))) {
  ThreadAttributes attributes;
  pthread_attr_setstacksize(attributes.get(), thread_stack_bytes());
  const int refused = pthread_create(&thread_, attributes.get(), run_body, body_.get());
  if (refused != 0) throw std::system_error(refused, std::generic_category());
}

Thread::~Thread() { pthread_join(thread_, nullptr); }

}  // namespace tessera
