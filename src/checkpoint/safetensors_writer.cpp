#include "checkpoint/safetensors_writer.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/safetensors_types.h"

// write_streams() writes the header (its size, then JSON with the type, shape and offsets of each
// tensor) and then the tensors' bytes, those of the widest elements first. A TensorStream makes its
// bytes while they are written. Its blocks are hashed on their way into an AtomicFile, which gets
// its name only when it is complete.

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kHeaderAlignment = 8;           // bytes of the widest elements, which follow
constexpr size_t kChunkBytes = size_t{4} << 20;  // hashed and then written while it is in the cache

void check_names(const fs::path& path, std::span<const TensorStream> streams) {
  std::set<std::string_view> names;
  for (const TensorStream& stream : streams) {
    if (stream.name == "__metadata__") {
      throw Error("{}: a tensor cannot be named __metadata__; rename it", path.string());
    }
    if (!names.insert(stream.name).second) {
      throw Error("{}: two tensors are named {}; rename one", path.string(),
                  in_quotes(stream.name));
    }
  }
}

std::vector<size_t> data_order(std::span<const TensorStream> streams) {
  std::vector<size_t> order(streams.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_size(streams[a].dtype) > dtype_size(streams[b].dtype);
  });
  return order;
}

/// Returns the header's JSON, padded, without its size.
std::string header_text(std::span<const TensorStream> streams, std::span<const size_t> order,
                        const std::map<std::string, std::string>& metadata) {
  // Joined by hand, because the library's ordered object searches all its keys at each insertion.
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + OrderedJson(metadata).dump();
  int64_t offset = 0;
  for (const size_t index : order) {
    const TensorStream& stream = streams[index];
    const int64_t end = offset + stream.bytes();
    const auto dims = stream.shape.dims();
    const OrderedJson entry{{"dtype", safetensors_name(stream.dtype)},
                            {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                            {"data_offsets", {offset, end}}};
    if (text.size() > 1) text += ',';
    text += OrderedJson(stream.name).dump() + ":" + entry.dump();
    offset = end;
  }
  text += '}';
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

/// Writes a tensor's bytes and returns the hashes of their blocks.
std::vector<uint64_t> write_stream(const TensorStream& stream, int64_t block_bytes,
                                   AtomicFile& file) {
  BlockHash hash(block_bytes);
  int64_t written = 0;
  stream.produce([&](std::span<const std::byte> bytes) {
    written += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
      const auto chunk = bytes.first(std::min(kChunkBytes, bytes.size()));
      hash.update(chunk);
      file.write(chunk);
      bytes = bytes.subspan(chunk.size());
    }
  });
  TESSERA_CHECK(written == stream.bytes(), "tensor {} of {} bytes gave {}", in_quotes(stream.name),
                stream.bytes(), written);
  return hash.finish();
}

}  // namespace

SafetensorsSummary write_streams(const fs::path& path, std::span<const TensorStream> streams,
                                 const std::map<std::string, std::string>& metadata,
                                 int64_t block_bytes) {
  check_names(path, streams);
  const std::vector<size_t> order = data_order(streams);
  std::string header;
  try {
    header = header_text(streams, order, metadata);
  } catch (const OrderedJson::exception& error) {
    throw Error("{}: a tensor's name or the metadata is not valid UTF-8 ({})", path.string(),
                printable(error.what()));
  }
  if (header.size() > kLargestSafetensorsHeader) {
    throw Error("{}: {} tensors need a header of {} bytes, at most {} are allowed; use more files",
                path.string(), streams.size(), header.size(), kLargestSafetensorsHeader);
  }
  SafetensorsSummary summary;
  summary.hashes.resize(streams.size());
  const uint64_t length = header.size();
  const auto length_bytes = std::as_bytes(std::span<const uint64_t>(&length, 1));
  const auto header_bytes = std::as_bytes(std::span<const char>(header));
  StreamHash header_hash;
  header_hash.update(length_bytes);
  header_hash.update(header_bytes);
  summary.header_hash = header_hash.value();

  AtomicFile file(path);
  file.write(length_bytes);
  file.write(header_bytes);
  for (const size_t index : order) {
    summary.hashes[index] = write_stream(streams[index], block_bytes, file);
  }
  summary.bytes = file.size();
  file.commit();
  return summary;
}

}  // namespace tessera
