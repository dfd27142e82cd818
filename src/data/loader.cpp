#include "data/loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "data/shards/split_reader.h"

namespace tessera {
namespace {

/// Prepares batches ahead on a thread of its own, from `start` on, which counts instances over all
/// epochs. The destructor ends the thread.
class ReadAhead {
 public:
  ReadAhead(const SplitReader& reader, const LoaderOptions& options, int64_t start)
      : reader_(reader), options_(options), next_start_(start), thread_([this] { work(); }) {}

  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Batch take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty() || error_; });
    if (queue_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return batch;
  }

 private:
  void work() {
    try {
      while (true) {
        Batch batch = read(next_start_);
        next_start_ += options_.parts * options_.rows;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stop_ || static_cast<int64_t>(queue_.size()) < options_.read_ahead;
        });
        if (stop_) return;
        queue_.push_back(std::move(batch));
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  Batch read(int64_t start) const {
    Batch batch;
    batch.rows = options_.rows;
    batch.context = reader_.context();
    const int64_t first = start + options_.part * options_.rows;
    const int64_t later = first + options_.parts * options_.rows;
    reader_.will_need(later % reader_.instances(), options_.rows);
    batch.tokens.resize(static_cast<size_t>(batch.rows * batch.context));
    for (int64_t row = 0; row < batch.rows; ++row) {
      reader_.read((first + row) % reader_.instances(),
                   std::span(batch.tokens)
                       .subspan(static_cast<size_t>(row * batch.context),
                                static_cast<size_t>(batch.context)));
    }
    complete_batch(batch, reader_.manifest().end_of_document);
    return batch;
  }

  const SplitReader& reader_;
  const LoaderOptions& options_;
  int64_t next_start_;  // the thread's alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> queue_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

void complete_batch(Batch& batch, int32_t end_of_document) {
  const size_t size = batch.tokens.size();
  const size_t context = static_cast<size_t>(batch.context);
  batch.targets.resize(size);
  batch.document_starts.resize(size);
  batch.positions.resize(size);
  for (size_t row = 0; row < size; row += context) {
    int32_t start = 0;
    for (size_t i = 0; i < context; ++i) {
      const bool last = i + 1 == context;
      batch.positions[row + i] = static_cast<int32_t>(i);
      batch.document_starts[row + i] = start;
      batch.targets[row + i] = last ? -1 : batch.tokens[row + i + 1];
      if (batch.tokens[row + i] == end_of_document) start = static_cast<int32_t>(i) + 1;
    }
  }
  batch.target_count = batch.rows * (batch.context - 1);
}

struct Loader::Implementation {
  explicit Implementation(const LoaderOptions& given)
      : options(given), reader(given.folder, given.split, given.context) {}

  LoaderOptions options;
  SplitReader reader;
  int64_t position = 0;                 // instances handed out over all epochs, by all parts
  std::optional<ReadAhead> read_ahead;  // begun by the first next() after a seek
};

Loader::Loader(const LoaderOptions& options) {
  const auto require_at_least = [](int64_t value, int64_t least, const char* name) {
    if (value < least)
      throw Error("the loader's {} is {}; expected at least {}", name, value, least);
  };
  require_at_least(options.rows, 1, "rows");
  require_at_least(options.parts, 1, "parts");
  require_at_least(options.read_ahead, 1, "read_ahead");
  if (options.part < 0 || options.part >= options.parts) {
    throw Error("the loader's part is {}; expected 0 to {}", options.part, options.parts - 1);
  }
  implementation_ = std::make_unique<Implementation>(options);
  seek(options.start);
}

Loader::~Loader() = default;

Batch Loader::next() {
  auto& read_ahead = implementation_->read_ahead;
  if (!read_ahead) {
    read_ahead.emplace(implementation_->reader, implementation_->options,
                       implementation_->position);
  }
  Batch batch = read_ahead->take();
  implementation_->position += implementation_->options.parts * implementation_->options.rows;
  return batch;
}

LoaderState Loader::state() const {
  return {implementation_->position / instances(), implementation_->position % instances()};
}

void Loader::seek(const LoaderState& state) {
  const int64_t most_epochs = std::numeric_limits<int64_t>::max() / 4 / instances();
  if (state.epoch < 0 || state.epoch > most_epochs || state.instance < 0 ||
      state.instance >= instances()) {
    throw Error(
        "there is no instance {} of epoch {} in {}, whose epochs have {} instances; is it the data "
        "that the run was started with?",
        state.instance, state.epoch, implementation_->options.folder.string(), instances());
  }
  implementation_->read_ahead.reset();
  implementation_->position = state.epoch * instances() + state.instance;
}

const Manifest& Loader::manifest() const { return implementation_->reader.manifest(); }

int64_t Loader::context() const { return implementation_->reader.context(); }

int64_t Loader::instances() const { return implementation_->reader.instances(); }

}  // namespace tessera
