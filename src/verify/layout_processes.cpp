#include "verify/layout_processes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rank_threads.h"
#include "comm/process_groups.h"
#include "train/same_run.h"
#include "verify/collected_results.h"
#include "verify/verify_memory.h"

namespace tessera {
namespace {

/// What the first rank says of the next trial, as bytes. An empty text says that there is none.
class TrialText {
 public:
  static std::string of(const LayoutTrial& trial) {
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

  /// Changes a trial to that of a text.
  static void apply(const std::string& text, LayoutTrial& trial) {
    TrialText reader(text);
    trial.compute = static_cast<DType>(reader.number());
    trial.pinned.assign(reader.count(), {});
    for (StepChoices& step : trial.pinned) {
      step.assign(reader.count(), {});
      for (auto& batch : step) {
        batch.assign(reader.count(), {});
        for (std::vector<int32_t>& layer : batch) {
          layer.assign(reader.count(), 0);
          reader.take(layer.data(), layer.size() * sizeof(int32_t));
        }
      }
    }
  }

 private:
  explicit TrialText(const std::string& text) : text_(text) {}

  static void add(std::string& text, int64_t number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  int64_t number() {
    int64_t number = 0;
    take(&number, sizeof(number));
    return number;
  }
  size_t count() { return static_cast<size_t>(number()); }
  void take(void* to, size_t bytes) {
    TESSERA_CHECK(bytes <= text_.size() - at_, "a trial's text ends after {} bytes", text_.size());
    std::memcpy(to, text_.data() + at_, bytes);
    at_ += bytes;
  }

  const std::string& text_;
  size_t at_ = 0;
};

/// Gives what a rank that is a process has to the first rank, which puts it together.
class SendingSink final : public ResultSink {
 public:
  explicit SendingSink(const RankControl& control) : control_(control) {}

  void put(const CollectedKey& key, const std::string& name, const Tensor& values,
           const PiecesOfRank& pieces) override {
    const Tensor host = on_host(values);
    std::vector<std::string> texts = control_.texts_for_first(
        std::string(reinterpret_cast<const char*>(host.raw()), static_cast<size_t>(host.bytes())));
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      auto* next = reinterpret_cast<std::byte*>(texts[rank].data());
      for (const TensorPiece& piece : pieces(static_cast<int>(rank))) {
        const Tensor part = Tensor::wrap(next, piece.shape(), host.dtype());
        results_.put(key, name, piece, part);
        next += part.bytes();
      }
    }
  }

  void put_bytes(const GradientBytes& of_rank) override {
    const uint64_t own[] = {std::bit_cast<uint64_t>(of_rank.counted),
                            std::bit_cast<uint64_t>(of_rank.expected)};
    const std::vector<uint64_t> all = control_.gather(own);
    for (size_t i = 0; i < all.size(); i += 2) {
      results_.put_bytes({std::bit_cast<double>(all[i]), std::bit_cast<double>(all[i + 1])});
    }
  }

  void put_step(size_t number, const LayoutStep& step) override {
    std::vector<uint64_t> own = bits_of(step.results);
    const size_t counts_begin = own.size();
    for (const std::vector<double>& layer : step.expert_tokens) {
      for (const double tokens : layer) own.push_back(std::bit_cast<uint64_t>(tokens));
    }
    const std::vector<uint64_t> all = control_.gather(own);
    for (size_t begin = 0; begin < all.size(); begin += own.size()) {
      LayoutStep other = step;  // of the same layers and experts
      other.results = step_results_of(std::span(all).subspan(begin, counts_begin));
      const uint64_t* next = all.data() + begin + counts_begin;
      for (std::vector<double>& layer : other.expert_tokens) {
        for (double& tokens : layer) tokens = std::bit_cast<double>(*next++);
      }
      results_.put_step(static_cast<int>(begin / own.size()), number, other);
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

size_t LayoutProcesses::largest(size_t own) const {
  const uint64_t number[] = {own};
  return std::ranges::max(control_.gather(number));
}

void LayoutProcesses::begin(const LayoutTrial& trial, const TrialBatches& batches) {
  trial_ = trial;
  batches_ = &batches;
  const auto steps = static_cast<int>(batches.whole.size());
  control_.together(
      [&] { require_verify_memory(trial_, steps, usable_memory(), processes_.ranks_here()); });
}

LayoutResults LayoutProcesses::run(const LayoutTrial& trial) {
  control_.any_text(TrialText::of(trial));
  return run_own(trial);
}

void LayoutProcesses::serve() {
  for (;;) {
    const std::optional<std::string> text = control_.any_text({});
    if (!text || text->empty()) return;
    TrialText::apply(*text, trial_);
    run_own(trial_);
  }
}

void LayoutProcesses::finish() { control_.any_text(""); }

LayoutResults LayoutProcesses::run_own(const LayoutTrial& trial) {
  SendingSink sink(control_);
  run_layout_rank(trial, threads_of_rank(trial.threads, cores_.ranks), groups_, *batches_, sink);
  return first() ? sink.results().results() : LayoutResults();
}

}  // namespace tessera
