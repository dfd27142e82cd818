#include "data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/affinity.h"
#include "base/error.h"
#include "data/mix.h"

// A loader prepares batches ahead in a thread of its own, ReadAhead, which repeats three steps:
//
//   1. next_plan() draws the origins of the rows of a batch from a Cursor. For each row, the Cursor
//      asks the Mix for a source and takes that source's next instance. The plan keeps the rows of
//      this loader's part and asks the system to read them ahead.
//   2. read_batch() lets each row's source copy the row's tokens into the batch (InstanceSource).
//      complete_batch() computes targets, starts of documents and positions from the tokens.
//   3. fill_queue() puts the batch into a queue, as soon as the queue has room.
//
// Loader::next() takes the first batch of the queue. The loader's state is the position after that
// batch. Reading ahead does not change it.

namespace tessera {
namespace {

/// The origin of one row of a batch.
struct Draw {
  const InstanceSource* source;
  int64_t epoch;
  int64_t instance;
};

/// A position that moves through the data and decides the source and the instance of each draw.
class Cursor {
 public:
  Cursor(const TrainingData& data, Split split, LoaderState state)
      : data_(data), split_(split), state_(std::move(state)), mix_(weights(data), counts(state_)) {}

  Draw next() {
    const size_t index = mix_.next();
    const InstanceSource& source = *data_.sources[index].instances;
    SourcePosition& position = state_.sources[index];
    const Draw draw{&source, position.epoch, position.instance};
    ++position.drawn;
    if (++position.instance == source.instances(split_)) {
      position.instance = 0;
      ++position.epoch;
    }
    return draw;
  }

  const LoaderState& state() const { return state_; }

 private:
  static std::vector<double> weights(const TrainingData& data) {
    std::vector<double> result;
    for (const DataSource& source : data.sources) result.push_back(source.weight);
    return result;
  }
  static std::vector<int64_t> counts(const LoaderState& state) {
    std::vector<int64_t> result;
    for (const SourcePosition& position : state.sources) result.push_back(position.drawn);
    return result;
  }

  const TrainingData& data_;
  Split split_;
  LoaderState state_;
  Mix mix_;
};

/// A batch and the position after it.
struct PositionedBatch {
  Batch batch;
  LoaderState after;
};

/// A queue of batches that are prepared ahead in a thread of its own, which ends with the queue.
class ReadAhead {
 public:
  ReadAhead(const TrainingData& data, const LoaderOptions& options, const LoaderState& start)
      : data_(data),
        options_(options),
        cursor_(data, options.split, start),
        depth_(options.read_ahead),
        thread_([this] { fill_queue(); }) {}

  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Prepares at least `batches` ahead from now on.
  void prepare_at_least(int64_t batches) {
    const std::lock_guard lock(mutex_);
    depth_ = std::max(depth_, batches);
    changed_.notify_all();
  }

  int64_t ready_batches() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(queue_.size());
  }

  PositionedBatch take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty() || error_; });
    if (queue_.empty()) std::rethrow_exception(error_);
    PositionedBatch batch = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return batch;
  }

 private:
  /// The rows of a batch of this part, and the position after the batches of all parts.
  struct Plan {
    std::vector<Draw> rows;
    LoaderState after;
  };

  void fill_queue() {
    run_on_any_core();  // not only on the core of the training thread
    try {
      Plan plan = next_plan();
      while (true) {
        Plan following = next_plan();  // the system reads its rows while `plan` is copied
        PositionedBatch batch{read_batch(plan.rows), std::move(plan.after)};
        plan = std::move(following);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || static_cast<int64_t>(queue_.size()) < depth_; });
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

  Plan next_plan() {
    Plan plan;
    for (int64_t i = 0; i < options_.parts * options_.rows; ++i) {
      const Draw draw = cursor_.next();
      if (i / options_.rows != options_.part) continue;
      draw.source->will_need(options_.split, draw.epoch, draw.instance);
      plan.rows.push_back(draw);
    }
    plan.after = cursor_.state();
    return plan;
  }

  Batch read_batch(std::span<const Draw> rows) const {
    Batch batch;
    batch.rows = options_.rows;
    batch.context = data_.sources.front().instances->context();
    batch.part = options_.part;
    batch.parts = options_.parts;
    const auto context = static_cast<size_t>(batch.context);
    batch.tokens.resize(rows.size() * context);
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto tokens = std::span(batch.tokens).subspan(row * context, context);
      rows[row].source->read(options_.split, rows[row].epoch, rows[row].instance, tokens);
      require_in_model(rows[row], tokens);
    }
    complete_batch(batch, data_.tokenizer.ids.end_of_document);
    return batch;
  }

  /// Throws Error if an id is outside the model's vocabulary. The sources check the ids only
  /// against the tokenizer's vocabulary, which may be larger.
  void require_in_model(const Draw& draw, std::span<const int32_t> tokens) const {
    const int64_t limit = options_.vocabulary_size;
    if (limit == 0 || limit >= data_.tokenizer.ids.vocabulary_size) return;
    const auto found = std::ranges::find_if(tokens, [&](int32_t token) { return token >= limit; });
    if (found == tokens.end()) return;
    throw Error(
        "{} is the id {}, but the model has a vocabulary of {}: the tokenizer, with {} tokens, is "
        "not the model's, or the model lacks tokens that were added to it; take data without them",
        draw.source->location(options_.split, draw.epoch, draw.instance, found - tokens.begin()),
        *found, limit, data_.tokenizer.ids.vocabulary_size);
  }

  const TrainingData& data_;
  const LoaderOptions& options_;
  Cursor cursor_;                    // used by thread_ alone
  std::mutex mutex_;                 // guards the four members after changed_
  std::condition_variable changed_;  // one of the four members below has changed
  int64_t depth_;                    // the number of batches to keep in the queue
  std::deque<PositionedBatch> queue_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // the last member, because it uses all others
};

void require_data(const TrainingData& data, Split split) {
  TESSERA_CHECK(!data.sources.empty(), "data without sources");
  const int64_t context = data.sources.front().instances->context();
  for (const DataSource& source : data.sources) {
    TESSERA_CHECK(source.instances->context() == context, "contexts of {} and {}", context,
                  source.instances->context());
    if (source.instances->instances(split) > 0) continue;
    throw Error("{} has no {} data; {}", source.instances->description(), split_name(split),
                empty_split_advice(split));
  }
}

void require_position(const DataSource& source, Split split, const SourcePosition& position) {
  const int64_t instances = source.instances->instances(split);
  // All epochs' instances are counted in 64 bits. A quarter of the range leaves room for sums.
  const int64_t last_epoch = std::numeric_limits<int64_t>::max() / 4 / instances;
  if (position.epoch < 0 || position.epoch > last_epoch || position.instance < 0 ||
      position.instance >= instances) {
    throw Error(
        "there is no instance {} of epoch {} in {}, whose epochs have {} instances; is it the data "
        "that the run was started with?",
        position.instance, position.epoch, source.instances->description(), instances);
  }
}

}  // namespace

void complete_batch(Batch& batch, int32_t end_of_document) {
  const size_t token_count = batch.tokens.size();
  const size_t context = static_cast<size_t>(batch.context);
  batch.targets.resize(token_count);
  batch.document_starts.resize(token_count);
  batch.positions.resize(token_count);
  for (size_t row = 0; row < token_count; row += context) {
    int32_t start = 0;
    for (size_t i = 0; i < context; ++i) {
      const bool last = i + 1 == context;
      batch.positions[row + i] = static_cast<int32_t>(i);
      batch.document_starts[row + i] = start;
      batch.targets[row + i] = last ? -1 : batch.tokens[row + i + 1];
      if (batch.tokens[row + i] == end_of_document) start = static_cast<int32_t>(i) + 1;
    }
  }
  batch.target_count = batch.parts * batch.rows * (batch.context - 1);
}

struct Loader::Implementation {
  TrainingData data;
  LoaderOptions options;
  LoaderState state;
  std::optional<ReadAhead> read_ahead;  // created by the first next() after a seek
};

Loader::Loader(const TrainingData& data, const LoaderOptions& options) {
  const auto require_at_least = [](int64_t value, int64_t least, const char* name) {
    if (value < least)
      throw Error("the loader's {} is {}; expected at least {}", name, value, least);
  };
  require_at_least(options.rows, 1, "rows");
  require_at_least(options.parts, 1, "parts");
  require_at_least(options.read_ahead, 1, "read_ahead");
  require_at_least(options.vocabulary_size, 0, "vocabulary_size");
  if (options.part < 0 || options.part >= options.parts) {
    throw Error("the loader's part is {}; expected 0 to {}", options.part, options.parts - 1);
  }
  require_data(data, options.split);
  implementation_ = std::make_unique<Implementation>();
  implementation_->data = data;
  implementation_->options = options;
  seek(options.start);
}

Loader::~Loader() = default;

Batch Loader::next() {
  auto& [data, options, state, read_ahead] = *implementation_;
  if (!read_ahead) read_ahead.emplace(data, options, state);
  PositionedBatch taken = read_ahead->take();
  state = std::move(taken.after);
  return std::move(taken.batch);
}

std::vector<Batch> Loader::next(int64_t batches) {
  std::vector<Batch> result;
  for (int64_t i = 0; i < batches; ++i) {
    result.push_back(next());
    if (i == 0) implementation_->read_ahead->prepare_at_least(batches);
  }
  return result;
}

int64_t Loader::ready_batches() const {
  auto& read_ahead = implementation_->read_ahead;
  return read_ahead ? read_ahead->ready_batches() : 0;
}

const LoaderState& Loader::state() const { return implementation_->state; }

void Loader::seek(const LoaderState& state) {
  const TrainingData& data = implementation_->data;
  const Split split = implementation_->options.split;
  LoaderState target = state;
  if (target.sources.empty()) target.sources.resize(data.sources.size());
  TESSERA_CHECK(target.sources.size() == data.sources.size(), "positions in {} of {} sources",
                target.sources.size(), data.sources.size());
  for (size_t i = 0; i < data.sources.size(); ++i) {
    require_position(data.sources[i], split, target.sources[i]);
  }
  const Cursor checked(data, split, target);  // throws when the counts do not fit the weights
  implementation_->read_ahead.reset();
  implementation_->state = std::move(target);
}

int64_t Loader::context() const {
  return implementation_->data.sources.front().instances->context();
}

int64_t Loader::instances(size_t source) const {
  return implementation_->data.sources.at(source).instances->instances(
      implementation_->options.split);
}

}  // namespace tessera
