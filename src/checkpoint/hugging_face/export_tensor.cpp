#include "checkpoint/hugging_face/export_tensor.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/hugging_face/element_check.h"

namespace tessera::hugging_face {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;  // elements converted at once
constexpr const char* kGroup = "parameters";

/// Elements of one type as they are asked for: as they are, or converted in a buffer of its own.
class Converter {
 public:
  Converter(DType from, DType to) : from_(from), to_(to) {
    if (from_ == to_) return;
    aligned_.resize(static_cast<size_t>(kChunk * dtype_size(from_)));
    converted_.resize(static_cast<size_t>(kChunk * dtype_size(to_)));
  }

  std::span<const std::byte> operator()(std::span<const std::byte> bytes) {
    if (from_ == to_) return bytes;
    const int64_t count = static_cast<int64_t>(bytes.size()) / dtype_size(from_);
    std::memcpy(aligned_.data(), bytes.data(), bytes.size());
    convert(Tensor::wrap(aligned_.data(), {count}, from_),
            Tensor::wrap(converted_.data(), {count}, to_));
    return std::span(converted_).first(static_cast<size_t>(count * dtype_size(to_)));
  }

 private:
  DType from_, to_;
  std::vector<std::byte> aligned_, converted_;
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
  const auto& segments = map_.of_tensor[static_cast<size_t>(index)];
  const DType first = source(segments.front()).dtype;
  const bool equal = std::ranges::all_of(
      segments, [&](const Segment& segment) { return source(segment).dtype == first; });
  return equal ? first : DType::f32;
}

int64_t ExportTensors::bytes(int64_t index) const {
  return shape(index).shape.elements() * dtype_size(dtype(index));
}

TensorStream ExportTensors::stream(int64_t index, CopyProgress& progress) const {
  return {shape(index).name, dtype(index), shape(index).shape,
          [this, index, &progress](const ByteSink& sink) { produce(index, sink, progress); }};
}

std::span<const std::byte> ExportTensors::checked_bytes(size_t parameter) const {
  const CheckpointTensor& tensor = *sources_[parameter];
  std::call_once(checked_[parameter], [&] { checkpoint_.check(tensor); });
  return checkpoint_.bytes(tensor);
}

void ExportTensors::produce(int64_t index, const ByteSink& sink, CopyProgress& progress) const {
  const std::string name = in_quotes(shape(index).name);
  const DType to = dtype(index);
  for (const Segment& segment : map_.of_tensor[static_cast<size_t>(index)]) {
    const CheckpointTensor& tensor = source(segment);
    const int64_t size = dtype_size(tensor.dtype);
    const auto whole = checked_bytes(segment.parameter);
    Converter converted(tensor.dtype, to);
    for (int64_t done = 0; done < segment.count; done += kChunk) {
      const int64_t count = std::min(kChunk, segment.count - done);
      const auto bytes = whole.subspan(static_cast<size_t>((segment.parameter_begin + done) * size),
                                       static_cast<size_t>(count * size));
      if (const int64_t bad = first_non_finite_element(bytes, tensor.dtype); bad >= 0) {
        throw Error("{}: element {} of {} (tensor {} of the export) is NaN or infinite",
                    checkpoint_.path().string(), segment.parameter_begin + done + bad,
                    in_quotes(tensor.name), name);
      }
      const auto result = converted(bytes);
      if (const int64_t bad = first_non_finite_element(result, to); bad >= 0) {
        throw Error(
            "element {} of {} (tensor {} of the export) is beyond the range of {}; export "
            "with --dtype bf16 or f32",
            segment.parameter_begin + done + bad, in_quotes(tensor.name), name, dtype_name(to));
      }
      sink(result);
      progress.add(static_cast<int64_t>(result.size()));
    }
    checkpoint_.release(tensor);
  }
}

}  // namespace tessera::hugging_face
