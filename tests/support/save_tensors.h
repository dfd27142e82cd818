#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strict_json.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save.h"

namespace tessera {

/// A tensor in memory, and its name in the file.
struct SafetensorsItem {
  std::string name;
  Tensor tensor;
};

/// Returns a stream of the bytes of a tensor in memory.
inline TensorStream stream_of(const SafetensorsItem& item) {
  const Tensor& tensor = item.tensor;
  return {item.name, tensor.dtype(), tensor.shape(), [tensor](const ByteSink& sink) {
            const Tensor host = on_host(tensor);
            sink({host.raw(), static_cast<size_t>(host.bytes())});
          }};
}

/// Does the same as write_streams() with tensors in memory, each hashed as one block.
inline SafetensorsSummary write_safetensors(
    const fs::path& path, std::span<const SafetensorsItem> items,
    const std::map<std::string, std::string>& metadata = {}) {
  std::vector<TensorStream> streams;
  for (const SafetensorsItem& item : items) streams.push_back(stream_of(item));
  return write_streams(path, streams, metadata);
}

/// Does the same as save_streams() with tensors in memory.
inline fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                                std::span<const NamedTensor> tensors,
                                std::span<const CarriedFile> carried = {},
                                const SaveOptions& options = {}) {
  std::vector<TensorToSave> streams;
  for (const NamedTensor& item : tensors) {
    TESSERA_CHECK(item.tensor.defined() || item.tensor.bytes() == 0, "tensor {} has no memory",
                  in_quotes(item.label()));
    streams.push_back(whole_to_save(item.group, stream_of({item.name, item.tensor})));
  }
  return save_streams(directory, state, streams, carried, options);
}

/// Fills all targets, which must be all the tensors of the checkpoint, or throws as require_all().
inline void load_all(const CheckpointReader& reader, std::span<const NamedTensor> targets,
                     int threads = 1) {
  reader.require_all(targets);
  reader.load_each(targets, threads);
}

/// Does the same for one group: the targets must be all its tensors.
inline void load_group(const CheckpointReader& reader, const std::string& group,
                       std::span<const NamedTensor> targets) {
  reader.require_all(targets, &group);
  reader.load_each(targets);
}

}  // namespace tessera
