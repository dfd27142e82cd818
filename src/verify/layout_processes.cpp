#include "verify/layout_processes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "comm/process_groups.h"
#include "train/same_run.h"
#include "verify/collected_results.h"
#include "verify/verify_memory.h"

// For each trial the first rank sends a TrialMessage. Then all ranks train, and their SendingSinks
// bring the results to the first rank, in collective calls that all make in the same order.

namespace tessera {
namespace {

/// The next trial, as the first rank sends it to the others: the precision and the pinned choices,
/// which alone differ between the trials of a verification. An empty message ends the trials.
class TrialMessage {
 public:
  static std::string encode(const LayoutTrial& trial) {
    std::string text;
    add(text, static_cast<int64_t>(trial.compute));
    add(text, std::ssize(trial.pinned));
    for (const StepChoices& step : trial.pinned) {
      add(text, std::ssize(step));
      for (const auto& batch : step) {
        add(text, std::ssize(batch));
        for (const std::vector<int32_t>& layer : batch) {
          add(text, std::ssize(layer));
          text.append(reinterpret_cast<const char*>(layer.data()), layer.size() * sizeof(int32_t));
        }
      }
    }
    return text;
  }

  /// Sets the precision and choices of a trial to those of a message.
  static void decode(const std::string& text, LayoutTrial& trial) {
    TrialMessage reader(text);
    trial.compute = static_cast<DType>(reader.read_number());
    trial.pinned.assign(reader.read_count(), {});
    for (StepChoices& step : trial.pinned) {
      step.assign(reader.read_count(), {});
      for (auto& batch : step) {
        batch.assign(reader.read_count(), {});
        for (std::vector<int32_t>& layer : batch) {
          layer.assign(reader.read_count(), 0);
          reader.read_bytes(layer.data(), layer.size() * sizeof(int32_t));
        }
      }
    }
  }

 private:
  explicit TrialMessage(const std::string& text) : text_(text) {}

  static void add(std::string& text, int64_t number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  int64_t read_number() {
    int64_t number = 0;
    read_bytes(&number, sizeof(number));
    return number;
  }
  size_t read_count() { return static_cast<size_t>(read_number()); }
  void read_bytes(void* target, size_t bytes) {
    TESSERA_CHECK(bytes <= text_.size() - offset_, "a trial's text ends after {} bytes",
                  text_.size());
    std::memcpy(target, text_.data() + offset_, bytes);
    offset_ += bytes;
  }

  const std::string& text_;
  size_t offset_ = 0;
};

/// Sends the results of a rank that is a process to the first rank, which puts them together. A
/// rank sends the bytes of its pieces alone: the first rank works out which pieces they are.
class SendingSink final : public ResultSink {
 public:
  explicit SendingSink(const RankControl& control) : control_(control) {}

  void put(const CollectedKey& key, const KeptTensor& tensor, const StateShard& shard) override {
    if (!shards_) shards_.emplace(shard);
    std::string own;  // nothing of a tensor of another pipeline stage
    if (tensor.memory.defined()) {
      const Tensor host = on_host(tensor.memory);
      own.assign(reinterpret_cast<const char*>(host.raw()), static_cast<size_t>(host.bytes()));
    }
    std::vector<std::string> texts = control_.texts_for_first(own);
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      auto* next = reinterpret_cast<std::byte*>(texts[rank].data());
      const std::byte* const end = next + texts[rank].size();
      for (const TensorPiece& piece :
           shards_->shard_of(static_cast<int>(rank)).pieces(tensor.index, tensor.kind)) {
        const Tensor part = Tensor::wrap(next, piece.shape(), tensor.dtype);
        TESSERA_CHECK(next + part.bytes() <= end, "rank {} sends {} bytes of {}", rank,
                      texts[rank].size(), tensor.name());
        results_.put(key, tensor.parameter->name, piece, part);
        next += part.bytes();
      }
      TESSERA_CHECK(next == end, "rank {} sends {} bytes of {}", rank, texts[rank].size(),
                    tensor.name());
    }
  }

  void put_bytes(const GradientBytes& rank_bytes) override {
    const uint64_t own[] = {std::bit_cast<uint64_t>(rank_bytes.counted),
                            std::bit_cast<uint64_t>(rank_bytes.expected)};
    const std::vector<uint64_t> all = control_.gather(own);
    for (size_t i = 0; i < all.size(); i += 2) {
      results_.put_bytes({std::bit_cast<double>(all[i]), std::bit_cast<double>(all[i + 1])});
    }
  }

  void put_step(size_t step_index, const LayoutStep& step) override {
    std::vector<uint64_t> own = bits_of(step.results);
    const size_t counts_begin = own.size();
    for (const std::vector<double>& layer : step.expert_tokens) {
      for (const double tokens : layer) own.push_back(std::bit_cast<uint64_t>(tokens));
    }
    const size_t bytes = own.size() * sizeof(uint64_t);
    int rank = 0;
    for (const std::string& text :
         control_.texts_for_first(std::string(reinterpret_cast<const char*>(own.data()), bytes))) {
      TESSERA_CHECK(text.size() == bytes, "ranks have other layers in step {}", step_index + 1);
      std::vector<uint64_t> numbers(own.size());
      std::memcpy(numbers.data(), text.data(), bytes);
      LayoutStep received = step;  // of the same layers and experts
      received.results = step_results_of(std::span(numbers).first(counts_begin));
      const uint64_t* next = numbers.data() + counts_begin;
      for (std::vector<double>& layer : received.expert_tokens) {
        for (double& tokens : layer) tokens = std::bit_cast<double>(*next++);
      }
      results_.put_step(rank++, step_index, received);
    }
  }

  void put_choices(StepChoices /*step*/) override {
    throw InternalError("several ranks do not note the choices of experts");
  }
  void put_stream(ValueStream /*stream*/) override {
    throw InternalError("processes do not note the values of a step");
  }

  const CollectedResults& results() const { return results_; }

 private:
  const RankControl& control_;
  std::optional<RankShards> shards_;  // the pieces that each rank holds; from the first put() on
  CollectedResults results_;
};

}  // namespace

LayoutProcesses::LayoutProcesses(const RunConfig& config, const Mesh& mesh, Processes& processes)
    : processes_(processes),
      groups_(groups_of(mesh, processes)),
      control_(control_of(groups_, processes)),
      cores_(
          find_shared_cores(processes.hosts()[static_cast<size_t>(processes.rank())], control_)) {
  require_same_start(config, processes_, control_);
}

size_t LayoutProcesses::largest_of_ranks(size_t own) const {
  const uint64_t own_number[] = {own};
  return std::ranges::max(control_.gather(own_number));
}

void LayoutProcesses::begin(const LayoutTrial& trial, const TrialBatches& batches) {
  trial_ = trial;
  batches_ = &batches;
  const auto steps = static_cast<int>(batches.whole.size());
  control_.together(
      [&] { require_verify_memory(trial_, steps, usable_memory(), processes_.ranks_here()); });
}

LayoutResults LayoutProcesses::run(const LayoutTrial& trial) {
  control_.any_text(TrialMessage::encode(trial));
  return run_own(trial);
}

void LayoutProcesses::serve() {
  for (;;) {
    const std::optional<std::string> text = control_.any_text({});
    if (!text || text->empty()) return;
    TrialMessage::decode(*text, trial_);
    run_own(trial_);
  }
}

void LayoutProcesses::finish() { control_.any_text(""); }

LayoutResults LayoutProcesses::run_own(const LayoutTrial& trial) {
  SendingSink sink(control_);
  FoundOrders found;
  run_layout_rank(trial, threads_of_rank(trial.threads, cores_.ranks), groups_, *batches_, found,
                  sink);
  return is_first() ? sink.results().results() : LayoutResults();
}

}  // namespace tessera
