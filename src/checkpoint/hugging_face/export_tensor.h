#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hugging_face/copy_progress.h"
#include "checkpoint/hugging_face/export.h"
#include "checkpoint/safetensors_writer.h"

namespace tessera::hugging_face {

/// The tensors of an export. Each is made when it is written.
class ExportTensors {
 public:
  /// Matches the checkpoint's parameters with the model's. Throws Error that names every parameter
  /// that is missing, left over or of another shape or type. `checkpoint` and `map` must outlive
  /// this object.
  ExportTensors(const CheckpointReader& checkpoint, const WeightMap& map,
                std::optional<DType> dtype);

  int64_t count() const { return static_cast<int64_t>(map_.tensors.size()); }
  /// Returns the name and the shape of tensor `index` in the export.
  const NamedShape& shape(int64_t index) const { return map_.tensors[static_cast<size_t>(index)]; }
  DType dtype(int64_t index) const;
  int64_t bytes(int64_t index) const;
  TensorStream stream(int64_t index, CopyProgress& progress) const;

 private:
  const CheckpointTensor& source(const MappedSegment& segment) const {
    return *sources_[segment.parameter];
  }
  /// Checks the hash of the parameter's bytes, once.
  void check_once(size_t parameter) const;
  void produce(int64_t index, const ByteSink& sink, CopyProgress& progress) const;

  const CheckpointReader& checkpoint_;
  const WeightMap& map_;
  std::optional<DType> dtype_;
  std::vector<const CheckpointTensor*> sources_;  // by parameter
  std::unique_ptr<std::once_flag[]> checked_;     // by parameter
};

}  // namespace tessera::hugging_face
