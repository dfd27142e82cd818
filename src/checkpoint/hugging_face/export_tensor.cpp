#include "checkpoint/hugging_face/export_tensor.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/hugging_face/element_check.h"

namespace tessera::hugging_face {
namespace {

constexpr const char* kGroup = "parameters";

/// Returns elements in the requested type: unchanged, or converted in its own buffer.
class Converter {
 public:
  Converter(DType from, DType to) : from_(from), to_(to) {
    if (from_ != to_) {
      converted_.resize(static_cast<size_t>(kReadPiece / dtype_size(from_) * dtype_size(to_)));
    }
  }

  /// Converts at most kReadPiece bytes.
  std::span<const std::byte> operator()(std::span<std::byte> bytes) {
    if (from_ == to_) return bytes;
    const int64_t count = static_cast<int64_t>(bytes.size()) / dtype_size(from_);
    convert(Tensor::wrap(bytes.data(), {count}, from_),
            Tensor::wrap(converted_.data(), {count}, to_));
    return std::span(converted_).first(static_cast<size_t>(count * dtype_size(to_)));
  }

 private:
  DType from_, to_;
  std::vector<std::byte> converted_;
};

}  // namespace

ExportTensors::ExportTensors(const CheckpointReader& checkpoint, const WeightMap& map,
                             std::optional<DType> dtype)
    : checkpoint_(checkpoint), map_(map), dtype_(dtype) {
  std::vector<std::string> differences;
  std::set<std::string_view> wanted;
  for (const auto& [name, shape] : map_.parameters) {
    wanted.insert(name);
    const CheckpointTensor* found = checkpoint_.find(kGroup, name);
    sources_.push_back(found);
    if (found == nullptr) {
      differences.push_back(fmt::format("{} is missing", in_quotes(name)));
    } else if (found->shape != shape || !is_floating(found->dtype)) {
      differences.push_back(fmt::format("{} is {} {}, expected {}", in_quotes(name),
                                        dtype_name(found->dtype), found->shape.text(),
                                        shape.text()));
    }
  }
  for (const CheckpointTensor& tensor : checkpoint_.manifest().tensors) {
    if (tensor.group == kGroup && !wanted.contains(tensor.name)) {
      differences.push_back(fmt::format("{} has no place", in_quotes(tensor.name)));
    }
  }
  checked_ = std::make_unique<std::once_flag[]>(sources_.size());
  if (differences.empty()) return;
  throw Error("the parameters of {} are not those of the model in its {}: {}",
              checkpoint_.path().string(), kCheckpointConfigName, join(differences, "; "));
}

DType ExportTensors::dtype(int64_t index) const {
  if (dtype_) return *dtype_;
  const auto& segments = map_.tensor_segments[static_cast<size_t>(index)];
  const DType first = source(segments.front()).dtype;
  const bool equal = std::ranges::all_of(
      segments, [&](const MappedSegment& segment) { return source(segment).dtype == first; });
  return equal ? first : DType::f32;
}

int64_t ExportTensors::bytes(int64_t index) const {
  return shape(index).shape.elements() * dtype_size(dtype(index));
}

TensorStream ExportTensors::stream(int64_t index, CopyProgress& progress) const {
  return {shape(index).name, dtype(index), shape(index).shape,
          [this, index, &progress](const ByteSink& sink) { produce(index, sink, progress); }};
}

void ExportTensors::check_once(size_t parameter) const {
  std::call_once(checked_[parameter], [&] { checkpoint_.check(*sources_[parameter]); });
}

void ExportTensors::produce(int64_t index, const ByteSink& sink, CopyProgress& progress) const {
  const std::string name = in_quotes(shape(index).name);
  const DType to = dtype(index);
  for (const MappedSegment& segment : map_.tensor_segments[static_cast<size_t>(index)]) {
    const CheckpointTensor& tensor = source(segment);
    const int64_t size = dtype_size(tensor.dtype);
    check_once(segment.parameter);
    Converter converted(tensor.dtype, to);
    int64_t element = segment.parameter_begin;
    const auto give = [&](std::span<std::byte> piece) {
      if (const int64_t bad = first_non_finite_element(piece, tensor.dtype); bad >= 0) {
        throw Error("{}: element {} of {} (tensor {} of the export) is NaN or infinite",
                    checkpoint_.path().string(), element + bad, in_quotes(tensor.name), name);
      }
      const auto result = converted(piece);
      if (const int64_t bad = first_non_finite_element(result, to); bad >= 0) {
        throw Error(
            "element {} of {} (tensor {} of the export) is beyond the range of {}; export "
            "with --dtype bf16 or f32",
            element + bad, in_quotes(tensor.name), name, dtype_name(to));
      }
      sink(result);
      progress.add(static_cast<int64_t>(result.size()));
      element += static_cast<int64_t>(piece.size()) / size;
    };
    checkpoint_.read_pieces(tensor, segment.parameter_begin * size, segment.count * size, give);
  }
}

}  // namespace tessera::hugging_face
