#include "device/emulation.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>

#include "base/error.h"
#include "device/emulation_stacks.h"

// Machine::run() runs a grid block by block. run_block() is the scheduler: while threads of the
// block may run, it chooses one and resumes its fiber. A thread runs until it returns or waits for
// its warp or its block; then it switches back to the scheduler. The last thread to arrive makes
// the others ready again. If no thread is ready and some have not returned, the block is stuck.
//
// The thread sanitizer does not instrument this file (see CMakeLists.txt): if it saw the scheduler,
// each switch of fibers would look like a barrier. It learns of the threads of a block only by the
// calls of before_switch(), release() and acquire(). To the sanitizer, a release() of an address
// and the acquire() after it are a barrier. Where a barrier may begin before all threads have left
// the one before, two addresses are used alternately.

namespace tessera::emulation {
namespace {

namespace context = boost::context;

/// The threads that a thread of a block waits for.
enum class WaitsFor { nothing, block, warp };

/// Thrown in a kernel's thread to end it when the threads that it waits for never arrive.
struct StuckThread {};

/// A thread of a block. Its fiber lives as long as the machine and runs one kernel after the other.
struct Thread {
  context::fiber fiber;
  Stack stack;
  WaitsFor waits_for = WaitsFor::nothing;
  bool done = false;
  unsigned exchanges = 0;                      // the number so far
  std::array<uint64_t, 2> exchanged_values{};  // of the last two exchanges, used alternately
};

/// Threads that wait for each other: a warp, or the block.
struct Group {
  int arrived = 0;  // threads at the present barrier
  unsigned barriers_passed = 0;
  std::array<char, 2> addresses{};  // for the thread sanitizer, used alternately
};

}  // namespace

/// The state of an emulator. The functions that kernels call find it through `current`.
class Machine {
 public:
  explicit Machine(const Options& options) : order_(options.order), random_(options.seed) {
    threads_.reserve(kMostThreads);  // no Thread may move: a running fiber refers to its own
  }
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void run(const Grid& grid, int lanes, const std::function<void()>& kernel);

  const Grid& grid() const { return grid_; }
  int lanes() const { return lanes_; }
  int64_t block() const { return block_index_; }
  int running_thread() const { return running_thread_; }
  void* shared() { return shared_.data(); }
  /// Waits until all threads of the running thread's block or warp have arrived here.
  void wait(WaitsFor waits_for, bool orders_memory);
  uint64_t exchange(uint64_t value, int from);

 private:
  Thread& thread(int number) { return threads_[static_cast<size_t>(number)]; }
  int block_threads() const { return grid_.threads * grid_.threads_y; }
  void note_scheduler();
  void add_thread();
  context::fiber run_thread(int number, context::fiber&& scheduler);
  void run_block();
  int take_ready_thread();
  void resume(int number);
  void switch_to_scheduler();
  void end_stuck();

  Order order_;
  std::mt19937_64 random_;
  Stacks stacks_;
  std::vector<Thread> threads_;
  std::vector<int> ready_;  // the numbers of the threads that may run
  Group whole_block_;
  std::vector<Group> warps_;
  std::vector<std::byte> shared_;  // the block's dynamic shared memory
  Stack scheduler_;
  context::fiber to_scheduler_;  // the scheduler, which the running thread switches to

  Grid grid_;
  int lanes_ = 32;
  const std::function<void()>* kernel_ = nullptr;
  int64_t block_index_ = 0;   // the index of the running block in the grid
  int running_thread_ = 0;    // the number of the running thread in the block
  bool ends_stuck_ = false;   // waiting threads end by StuckThread
  bool ends_fibers_ = false;  // fibers end when they are resumed
  std::exception_ptr error_;  // the first error of the block
  int64_t block_count_ = 1;   // of the blocks since the machine was made, with the running one
  std::array<char, 2> block_addresses_{};  // for the thread sanitizer, used alternately
};

namespace {

thread_local Machine* current = nullptr;  // the machine that runs a kernel on this thread

/// A guard that sets `current` until it is destroyed.
class Current {
 public:
  explicit Current(Machine& machine) : previous_(std::exchange(current, &machine)) {}
  ~Current() { current = previous_; }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  Machine* previous_;
};

}  // namespace

Machine::~Machine() {
  ends_fibers_ = true;  // each fiber returns when it is resumed
  note_scheduler();
  for (int number = 0; number < std::ssize(threads_); ++number) {
    resume(number);
#if defined(TESSERA_THREAD_SANITIZER)
    __tsan_destroy_fiber(thread(number).stack.thread);
#endif
  }
}

/// Makes the fiber of one more thread of a block. It begins to run when it is first resumed.
void Machine::add_thread() {
  const auto number = static_cast<int>(threads_.size());
  Thread thread;
  thread.stack.bottom = stacks_[threads_.size()];
  thread.stack.bytes = kStackBytes;
  context::stack_context stack;
  stack.size = kStackBytes;
  stack.sp = stacks_[threads_.size()] + kStackBytes;  // it grows down
#if defined(TESSERA_THREAD_SANITIZER)
  thread.stack.thread = __tsan_create_fiber(0);
#endif
  thread.fiber =
      context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                     StackOfOwner{}, [this, number](context::fiber&& scheduler) {
                       return run_thread(number, std::move(scheduler));
                     });
  threads_.push_back(std::move(thread));
}

/// The body of a fiber: each time that it is resumed, it runs a kernel as one thread of a block.
context::fiber Machine::run_thread(int number, context::fiber&& scheduler) {
  to_scheduler_ = std::move(scheduler);
  after_switch(thread(number).stack, scheduler_);
  while (!ends_fibers_) {
    // All blocks use the same shared memory here, one after the other. The thread sanitizer must
    // not report that: on a device each block has its own.
    acquire(&block_addresses_[static_cast<size_t>(1 - block_count_ % 2)]);
    try {
      (*kernel_)();
    } catch (const StuckThread&) {  // end_stuck() reports it for the whole block
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    release(&block_addresses_[static_cast<size_t>(block_count_ % 2)]);
    thread(number).done = true;
    switch_to_scheduler();
  }
  before_switch(thread(number).stack, scheduler_, /*ends=*/true);
  return std::move(to_scheduler_);
}

/// Notes the sanitizer's fiber of the scheduler, which runs on the thread that calls the machine.
void Machine::note_scheduler() {
#if defined(TESSERA_THREAD_SANITIZER)
  scheduler_.thread = __tsan_get_current_fiber();
#endif
}

/// Switches to the fiber of a thread, and returns when the thread switches back.
void Machine::resume(int number) {
  running_thread_ = number;
  Stack& stack = thread(number).stack;
  before_switch(scheduler_, stack);
  thread(number).fiber = std::move(thread(number).fiber).resume();
  after_switch(scheduler_, stack);
}

/// Switches from the running thread to the scheduler, and returns when the thread is resumed.
void Machine::switch_to_scheduler() {
  Stack& stack = thread(running_thread_).stack;
  before_switch(stack, scheduler_);
  to_scheduler_ = std::move(to_scheduler_).resume();
  after_switch(stack, scheduler_);
}

void Machine::wait(WaitsFor waits_for, bool orders_memory) {
  Thread& self = thread(running_thread_);
  const bool for_block = waits_for == WaitsFor::block;
  Group& group = for_block ? whole_block_ : warps_[static_cast<size_t>(running_thread_ / lanes_)];
  // A thread may arrive at the next barrier before others have left this one, but at no later one.
  char* const address = &group.addresses[group.barriers_passed % 2];
  if (orders_memory) release(address);
  const int group_begin = for_block ? 0 : running_thread_ / lanes_ * lanes_;
  const int group_size = for_block ? block_threads() : lanes_;
  if (++group.arrived < group_size) {
    self.waits_for = waits_for;
    switch_to_scheduler();
    if (ends_stuck_) throw StuckThread();
  } else {
    group.arrived = 0;
    ++group.barriers_passed;
    for (int member = group_begin; member < group_begin + group_size; ++member) {
      if (member == running_thread_) continue;
      thread(member).waits_for = WaitsFor::nothing;
      ready_.push_back(member);
    }
  }
  if (orders_memory) acquire(address);
}

uint64_t Machine::exchange(uint64_t value, int from) {
  Thread& self = thread(running_thread_);
  // The thread may give its next value before others have read this one, but not the one after.
  const unsigned slot = self.exchanges++ % 2;
  self.exchanged_values[slot] = value;
  wait(WaitsFor::warp, /*orders_memory=*/false);
  return thread(running_thread_ / lanes_ * lanes_ + from % lanes_).exchanged_values[slot];
}

/// Removes one of the threads that may run from ready_ and returns its number.
int Machine::take_ready_thread() {
  size_t index = 0;
  if (order_ == Order::backward) index = ready_.size() - 1;
  if (order_ == Order::shuffled) index = random_() % ready_.size();
  const int number = ready_[index];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(index));
  return number;
}

/// Runs block `block_index_` to its end. Throws the first error of its threads.
void Machine::run_block() {
  whole_block_ = {};
  warps_.assign(static_cast<size_t>(block_threads() / lanes_), {});
  // Floats with all bits set are NaN, so results show a read of memory that nothing has written.
  std::ranges::fill(shared_, std::byte{0xff});
  ready_.clear();
  for (int number = 0; number < block_threads(); ++number) {
    thread(number).done = false;
    thread(number).waits_for = WaitsFor::nothing;
    thread(number).exchanges = 0;
    ready_.push_back(number);
  }
  while (!ready_.empty()) resume(take_ready_thread());
  const bool stuck = std::ranges::any_of(threads_.begin(), threads_.begin() + block_threads(),
                                         [](const Thread& thread) { return !thread.done; });
  if (stuck) end_stuck();
  acquire(&block_addresses_[static_cast<size_t>(block_count_++ % 2)]);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

/// Ends the threads that wait for others that never arrive, and sets error_ to an Error about them.
void Machine::end_stuck() {
  int at_barrier = 0, in_warp = 0, returned = 0;
  ends_stuck_ = true;
  for (int number = 0; number < block_threads(); ++number) {
    if (thread(number).done) {
      ++returned;
      continue;
    }
    ++(thread(number).waits_for == WaitsFor::block ? at_barrier : in_warp);
    resume(number);
  }
  ends_stuck_ = false;
  if (error_) return;
  error_ = std::make_exception_ptr(Error(
      "a kernel is stuck in block ({}, {}): {} threads wait for the whole block, {} for their "
      "warp, and {} have returned; every thread must reach the same barriers and shuffles",
      block_index_ % grid_.blocks, block_index_ / grid_.blocks, at_barrier, in_warp, returned));
}

void Machine::run(const Grid& grid, int lanes, const std::function<void()>& kernel) {
  grid_ = grid;
  lanes_ = lanes;
  kernel_ = &kernel;
  TESSERA_CHECK(lanes > 0 && block_threads() >= lanes && block_threads() <= kMostThreads &&
                    block_threads() % lanes == 0,
                "a block of {} x {} threads; a block has 1 to {} threads in whole warps of {}",
                grid.threads, grid.threads_y, kMostThreads, lanes);
  while (std::ssize(threads_) < block_threads()) add_thread();
  const Current guard(*this);
  note_scheduler();
  shared_ = std::vector<std::byte>(static_cast<size_t>(grid.shared_bytes));
  const int64_t blocks = grid.blocks * grid.blocks_y;
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (order_ == Order::backward) std::ranges::reverse(order);
  if (order_ == Order::shuffled) std::ranges::shuffle(order, random_);
  release(&block_addresses_[static_cast<size_t>(1 - block_count_ % 2)]);
  for (const int64_t block : order) {
    block_index_ = block;
    run_block();
  }
}

Emulator::Emulator(const Options& options) : machine_(std::make_unique<Machine>(options)) {}
Emulator::~Emulator() = default;

void Emulator::run(const Grid& grid, int lanes, const std::function<void()>& kernel) {
  machine_->run(grid, lanes, kernel);
}

Dim3 thread_index() {
  const auto number = static_cast<unsigned>(current->running_thread());
  const auto width = static_cast<unsigned>(current->grid().threads);
  return {number % width, number / width, 0};
}

Dim3 block_index() {
  const int64_t width = current->grid().blocks;
  return {static_cast<unsigned>(current->block() % width),
          static_cast<unsigned>(current->block() / width), 0};
}

Dim3 block_size() {
  return {static_cast<unsigned>(current->grid().threads),
          static_cast<unsigned>(current->grid().threads_y), 1};
}

Dim3 grid_size() {
  return {static_cast<unsigned>(current->grid().blocks),
          static_cast<unsigned>(current->grid().blocks_y), 1};
}

void wait_for_block() { current->wait(WaitsFor::block, /*orders_memory=*/true); }
void wait_for_warp() { current->wait(WaitsFor::warp, /*orders_memory=*/true); }
uint64_t exchange(uint64_t value, int from) { return current->exchange(value, from); }

uint64_t ballot(bool value) {
  uint64_t bits = 0;
  // Does one exchange per lane. That is slow but simple, and kernels use few ballots.
  for (int from = 0; from < current->lanes(); ++from) {
    bits |= current->exchange(value ? 1 : 0, from) << from;
  }
  return bits;
}

int lane() { return current->running_thread() % current->lanes(); }
void* dynamic_shared() { return current->shared(); }

}  // namespace tessera::emulation
