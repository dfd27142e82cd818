#include "data/shards/gather.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/npy.h"
#include "data/worker_pool.h"

namespace tessera {
namespace {

/// Reads token ranges of the stream, keeping the item of the last range open: readers come in the
/// stream's order.
class StreamReader {
 public:
  explicit StreamReader(const TokenStream& stream) : stream_(stream) {}
  ~StreamReader() { close(); }
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  /// Fills `target` with the tokens from `token` on.
  void read(int64_t token, std::span<std::byte> target) {
    const int64_t width = dtype_size(stream_.dtype);
    while (!target.empty()) {
      const auto after = std::upper_bound(stream_.begins.begin(), stream_.begins.end(), token);
      const size_t item = static_cast<size_t>(after - stream_.begins.begin()) - 1;
      const int64_t available = (stream_.begins[item + 1] - token) * width;
      const size_t bytes = std::min(target.size(), static_cast<size_t>(available));
      open(item);
      read_bytes(kWorkItemHeaderBytes + (token - stream_.begins[item]) * width,
                 target.first(bytes));
      target = target.subspan(bytes);
      token += static_cast<int64_t>(bytes) / width;
    }
  }

 private:
  void open(size_t item) {
    if (descriptor_ >= 0 && item == item_) return;
    close();
    descriptor_ = ::open(stream_.items[item].c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(item);
    item_ = item;
  }

  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  void read_bytes(int64_t offset, std::span<std::byte> target) {
    while (!target.empty()) {
      const ssize_t bytes = ::pread(descriptor_, target.data(), target.size(), offset);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) fail(item_);
      target = target.subspan(static_cast<size_t>(bytes));
      offset += bytes;
    }
  }

  [[noreturn]] void fail(size_t item) const {
    throw Error("cannot read {}: {}; run prepare again", stream_.items[item].string(),
                errno != 0 ? std::strerror(errno) : "it is shorter than it was");
  }

  const TokenStream& stream_;
  int descriptor_ = -1;
  size_t item_ = 0;
};

template <typename T>
int64_t count_token(std::span<const std::byte> bytes, int32_t token) {
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  return std::count(values, values + bytes.size() / sizeof(T), static_cast<T>(token));
}

class ShardGatherer {
 public:
  ShardGatherer(const TokenStream& stream, const SplitPlan& plan, const Permutation& permutation,
                int32_t end_of_document, int threads, const std::function<void(int64_t)>& tick)
      : stream_(stream),
        plan_(plan),
        permutation_(permutation),
        end_of_document_(end_of_document),
        threads_(threads),
        tick_(tick) {}

  /// Writes (or keeps) the shard of instances [begin, end) of the permuted order.
  Shard write(const fs::path& path, int64_t begin, int64_t end) {
    if (fs::exists(path)) {
      ++shards_reused_;
    } else {
      gather(begin, end);
      NpyWriter writer(path, stream_.dtype, plan_.context);
      writer.append(buffer_);
      writer.commit();
    }
    const MappedFile file(path);
    const NpyHeader header = parse_npy_header(file.bytes(), path.string());
    if (header.dtype != stream_.dtype || header.shape != std::vector{end - begin, plan_.context}) {
      throw Error("{} is not the shard that the plan says; delete it and run prepare again",
                  path.string());
    }
    documents_ += count_documents(file.bytes().subspan(static_cast<size_t>(header.data_offset)));
    instances_done_ += end - begin;
    tick_(instances_done_);
    return {path.filename().string(), end - begin, static_cast<int64_t>(file.bytes().size()),
            hash_text(hash(file.bytes()))};
  }

  int64_t take_documents() { return std::exchange(documents_, 0); }
  int64_t shards_reused() const { return shards_reused_; }

 private:
  struct Move {
    int64_t source;  // instance in the stream
    int64_t row;     // in the shard
    bool operator<(const Move& other) const { return source < other.source; }
  };

  void gather(int64_t begin, int64_t end) {
    const int64_t row_bytes = plan_.context * dtype_size(stream_.dtype);
    const int64_t rows = end - begin;
    moves_.clear();
    for (int64_t row = 0; row < rows; ++row) {
      const auto source = permutation_(static_cast<uint64_t>(begin + row));
      moves_.push_back({static_cast<int64_t>(source), row});
    }
    // In the stream's order the reads go forward through each item file, once.
    std::sort(moves_.begin(), moves_.end());
    buffer_.resize(static_cast<size_t>(rows * row_bytes));
    std::atomic<int64_t> done{0};
    run_workers(
        threads_, threads_,
        "interrupted while writing shards; run prepare again, without overwriting, to continue",
        [&](int64_t part, const std::atomic<bool>& cancelled) {
          StreamReader reader(stream_);
          for (int64_t i = rows * part / threads_; i < rows * (part + 1) / threads_; ++i) {
            if (cancelled) throw Cancelled();
            const Move& move = moves_[static_cast<size_t>(i)];
            reader.read(move.source * plan_.context,
                        std::span(buffer_).subspan(static_cast<size_t>(move.row * row_bytes),
                                                   static_cast<size_t>(row_bytes)));
            ++done;
          }
        },
        [&] { tick_(instances_done_ + done); });
  }

  int64_t count_documents(std::span<const std::byte> data) const {
    return stream_.dtype == DType::u16 ? count_token<uint16_t>(data, end_of_document_)
                                       : count_token<int32_t>(data, end_of_document_);
  }

  const TokenStream& stream_;
  const SplitPlan& plan_;
  const Permutation& permutation_;
  const int32_t end_of_document_;
  const int threads_;
  const std::function<void(int64_t)>& tick_;
  std::vector<Move> moves_;
  std::vector<std::byte> buffer_;
  int64_t instances_done_ = 0;
  int64_t documents_ = 0;
  int64_t shards_reused_ = 0;
};

}  // namespace

SplitPlan plan_splits(int64_t tokens, int64_t context, double held_out_fraction,
                      int64_t shard_tokens) {
  SplitPlan plan;
  plan.context = context;
  plan.instances = tokens / context;
  if (held_out_fraction > 0) {
    const double wanted = std::ceil(held_out_fraction * static_cast<double>(plan.instances));
    plan.held_out = std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, plan.instances);
    plan.held_out = std::min(plan.held_out, plan.instances - 1);
  }
  plan.shard_instances = std::max<int64_t>(1, shard_tokens / context);
  return plan;
}

GatherResult gather_shards(const TokenStream& stream, const SplitPlan& plan,
                           const Permutation& permutation, int32_t end_of_document,
                           const fs::path& folder, int threads,
                           const std::function<void(int64_t)>& tick) {
  GatherResult result;
  ShardGatherer gatherer(stream, plan, permutation, end_of_document, threads, tick);
  for (const Split which : {Split::train, Split::held_out}) {
    SplitSummary& summary = which == Split::train ? result.train : result.held_out;
    for (int64_t begin = plan.begin(which); begin < plan.end(which);
         begin += plan.shard_instances) {
      const int64_t end = std::min(begin + plan.shard_instances, plan.end(which));
      const std::string name =
          fmt::format("{}-{:05}.npy", split_name(which), summary.shards.size());
      summary.shards.push_back(gatherer.write(folder / name, begin, end));
      summary.instances += end - begin;
    }
    summary.tokens = summary.instances * plan.context;
    summary.documents = gatherer.take_documents();
  }
  result.shards_reused = gatherer.shards_reused();
  return result;
}

}  // namespace tessera
