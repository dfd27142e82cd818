#include "data/shards/gather.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/read_file.h"
#include "data/npy.h"
#include "data/shards/block_hashes.h"
#include "data/worker_pool.h"

// A shard is made in memory. ShardGatherer finds the instance of each row, sorts the rows by their
// instances' order in the stream, and lets threads copy them from the work items (StreamReader).

namespace tessera {
namespace {

/// A reader of token ranges of the stream. It keeps the item of the last range open, because ranges
/// are read in the stream's order.
class StreamReader {
 public:
  explicit StreamReader(const TokenStream& stream) : stream_(stream) {}

  /// Fills `target` with the tokens from stream index `token` on.
  void read(int64_t token, std::span<std::byte> target) {
    const int64_t token_bytes = dtype_size(stream_.dtype);
    while (!target.empty()) {
      const auto after = std::upper_bound(stream_.begins.begin(), stream_.begins.end(), token);
      const size_t item = static_cast<size_t>(after - stream_.begins.begin()) - 1;
      const int64_t available = (stream_.begins[item + 1] - token) * token_bytes;
      const size_t bytes = std::min(target.size(), static_cast<size_t>(available));
      open(item);
      file_.read_at(kWorkItemHeaderBytes + (token - stream_.begins[item]) * token_bytes,
                    target.first(bytes));
      target = target.subspan(bytes);
      token += static_cast<int64_t>(bytes) / token_bytes;
    }
  }

 private:
  void open(size_t item) {
    if (item_ == item) return;
    file_ = ReadFile(stream_.items[item]);
    item_ = item;
  }

  const TokenStream& stream_;
  ReadFile file_;
  std::optional<size_t> item_;  // the index of the item whose file is file_
};

template <typename T>
int64_t count_token(std::span<const std::byte> bytes, int32_t token) {
  const auto* values = reinterpret_cast<const T*>(bytes.data());  // the vector's start is aligned
  return std::count(values, values + bytes.size() / sizeof(T), static_cast<T>(token));
}

/// A writer of shards, one after another, in the order of the permuted instances. Threads read the
/// instances of a shard together, in the order of the stream.
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

  GatherResult run(const fs::path& folder) {
    for (const Split split : {Split::train, Split::held_out}) {
      SplitSummary& summary = split == Split::train ? result_.train : result_.held_out;
      for (int64_t begin = plan_.begin(split); begin < plan_.end(split);
           begin += plan_.shard_instances) {
        const int64_t end = std::min(begin + plan_.shard_instances, plan_.end(split));
        const std::string name =
            fmt::format("{}-{:05}.npy", split_name(split), summary.shards.size());
        summary.shards.push_back(write(folder / name, begin, end));
        summary.instances += end - begin;
        summary.documents += count_documents();
      }
      summary.tokens = summary.instances * plan_.context;
    }
    return std::move(result_);
  }

 private:
  /// A copy of one instance from the stream into the shard.
  struct Copy {
    int64_t instance;  // the index of the instance in the stream
    int64_t row;       // the row in the shard
    bool operator<(const Copy& other) const { return instance < other.instance; }
  };

  /// Writes (or keeps) the shard of instances [begin, end) of the permuted order.
  Shard write(const fs::path& path, int64_t begin, int64_t end) {
    const std::string name = path.filename().string();
    const fs::path hashes_path = path.parent_path() / block_hashes_name(name);
    const std::string header = npy_header(stream_.dtype, end - begin, plan_.context);
    buffer_.resize(static_cast<size_t>((end - begin) * plan_.context * dtype_size(stream_.dtype)));
    const bool was_written = path_exists(path) && path_exists(hashes_path);
    std::optional<FileHashes> hashes;
    if (was_written) hashes = read_written_shard(path, hashes_path, header);
    if (hashes) {
      ++result_.shards_reused;
    } else {
      if (was_written) result_.shards_remade.push_back(name);
      gather(begin, end);
      hashes = hash_shard(header);
      AtomicFile file(path);
      file.write(header);
      file.write(buffer_);
      file.commit();
      write_file(hashes_path, block_hashes_text(*hashes));
    }
    instances_done_ += end - begin;
    tick_(instances_done_);
    return {name, end - begin, static_cast<int64_t>(header.size() + buffer_.size()),
            hash_text(hashes->whole), hash_text(hash(block_hashes_text(*hashes)))};
  }

  /// Reads the data of an existing shard into the buffer. Returns its hashes, or nothing if the
  /// file does not have the expected header, size and hashes.
  std::optional<FileHashes> read_written_shard(const fs::path& path, const fs::path& hashes_path,
                                               const std::string& header) {
    const ReadFile file(path);
    const auto header_bytes = static_cast<int64_t>(header.size());
    if (file.size() != header_bytes + static_cast<int64_t>(buffer_.size())) return std::nullopt;
    std::string head(header.size(), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(head)));
    file.read_at(header_bytes, buffer_);
    FileHashes hashes = hash_shard(header);
    if (head != header || read_file(hashes_path) != block_hashes_text(hashes)) return std::nullopt;
    return hashes;
  }

  FileHashes hash_shard(std::string_view header) const {
    FileHasher hasher;
    hasher.update(std::as_bytes(std::span(header)));
    hasher.update(buffer_);
    return hasher.finish();
  }

  /// Fills the buffer with the instances [begin, end) of the permuted order.
  void gather(int64_t begin, int64_t end) {
    const int64_t row_bytes = plan_.context * dtype_size(stream_.dtype);
    const int64_t rows = end - begin;
    copies_.clear();
    for (int64_t row = 0; row < rows; ++row) {
      const auto instance = permutation_(static_cast<uint64_t>(begin + row));
      copies_.push_back({static_cast<int64_t>(instance), row});
    }
    // In the stream's order, the reads go forward through each item file once.
    std::sort(copies_.begin(), copies_.end());
    std::atomic<int64_t> done{0};
    run_workers(
        threads_, threads_,
        "interrupted while writing shards; run prepare again, without overwriting, to continue",
        [&](int64_t part, const std::atomic<bool>& cancelled) {
          StreamReader reader(stream_);
          for (int64_t i = rows * part / threads_; i < rows * (part + 1) / threads_; ++i) {
            if (cancelled) throw Cancelled();
            const Copy& copy = copies_[static_cast<size_t>(i)];
            reader.read(copy.instance * plan_.context,
                        std::span(buffer_).subspan(static_cast<size_t>(copy.row * row_bytes),
                                                   static_cast<size_t>(row_bytes)));
            ++done;
          }
        },
        [&] { tick_(instances_done_ + done); });
  }

  int64_t count_documents() const {
    return stream_.dtype == DType::u16 ? count_token<uint16_t>(buffer_, end_of_document_)
                                       : count_token<int32_t>(buffer_, end_of_document_);
  }

  const TokenStream& stream_;
  const SplitPlan& plan_;
  const Permutation& permutation_;
  const int32_t end_of_document_;
  const int threads_;
  const std::function<void(int64_t)>& tick_;
  std::vector<Copy> copies_;
  std::vector<std::byte> buffer_;  // the shard's tokens, [instances, context]
  int64_t instances_done_ = 0;
  GatherResult result_;
};

}  // namespace

int64_t count_held_out(int64_t instances, double fraction) {
  if (!(fraction > 0)) return 0;
  const auto held_out = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(instances)));
  return std::min(std::clamp<int64_t>(held_out, 1, instances), instances - 1);
}

SplitPlan plan_splits(int64_t tokens, int64_t context, double held_out_fraction,
                      int64_t shard_tokens) {
  const int64_t instances = tokens / context;
  return {.context = context,
          .instances = instances,
          .held_out = count_held_out(instances, held_out_fraction),
          .shard_instances = std::max<int64_t>(1, shard_tokens / context)};
}

GatherResult gather_shards(const TokenStream& stream, const SplitPlan& plan,
                           const Permutation& permutation, int32_t end_of_document,
                           const fs::path& folder, int threads,
                           const std::function<void(int64_t)>& tick) {
  return ShardGatherer(stream, plan, permutation, end_of_document, threads, tick).run(folder);
}

}  // namespace tessera
