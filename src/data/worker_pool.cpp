#include "data/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"

namespace tessera {

void run_workers(int threads, int64_t count, const char* interrupted_message,
                 const std::function<void(int64_t, const std::atomic<bool>&)>& body,
                 const std::function<void()>& tick) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  std::condition_variable ended;
  std::exception_ptr error;
  int64_t running = std::clamp<int64_t>(count, 0, threads);

  const auto fail = [&](std::exception_ptr thrown) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(thrown);
    cancelled = true;
  };
  const auto work = [&] {
    try {
      for (int64_t item = next++; item < count && !cancelled; item = next++) body(item, cancelled);
    } catch (const Cancelled&) {  // the error that cancelled the item is stored already
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  };

  std::vector<std::jthread> workers;  // joined before the variables above go out of scope
  for (int64_t i = running; i > 0; --i) workers.emplace_back(work);
  std::unique_lock lock(mutex);
  while (running > 0) {
    ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; });
    lock.unlock();
    if (InterruptGuard::requested() && !cancelled) {
      fail(std::make_exception_ptr(Error("{}", interrupted_message)));
    }
    tick();
    lock.lock();
  }
  lock.unlock();
  workers.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera
