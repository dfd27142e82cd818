#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "benchmarks.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/save.h"

namespace tessera {
namespace {

constexpr int kTensors = 4;
constexpr int64_t kRows = 4096, kColumns = 4096;  // of each, f32: 64 MiB
constexpr int kRanks = 4;

/// A folder for checkpoints, removed at the end.
class CheckpointsFolder {
 public:
  CheckpointsFolder() {
    std::string pattern = (fs::temp_directory_path() / "tessera-checkpoints-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~CheckpointsFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CheckpointsFolder(const CheckpointsFolder&) = delete;
  CheckpointsFolder& operator=(const CheckpointsFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string name_of(int tensor) { return fmt::format("w{}", tensor); }

std::vector<Tensor> some_tensors() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.emplace_back(Shape{kRows, kColumns}, DType::f32);
    std::ranges::fill(tensors.back().values<float>(), static_cast<float>(i));
  }
  return tensors;
}

/// What one of several writers writes: its rows of each tensor.
std::vector<TensorToSave> streams_of(const std::vector<Tensor>& tensors, CheckpointWriter writer) {
  std::vector<TensorToSave> streams;
  const int64_t rows = kRows / writer.count;
  for (int i = 0; i < kTensors; ++i) {
    const Tensor& tensor = tensors[static_cast<size_t>(i)];
    const Region region{{{writer.number * rows, rows}, {0, kColumns}}};
    streams.push_back({"parameters", name_of(i), tensor.dtype(), tensor.shape(), {}});
    streams.back().pieces.push_back(piece_to_save(region, TensorPiece(tensor.shape()), tensor));
  }
  return streams;
}

/// Saves with so many writers, each a thread that writes its own file.
void save(const fs::path& directory, const std::vector<Tensor>& tensors, int writers) {
  const SaveOptions options{.threads = 1};
  SharedSave shared(directory, 1);
  std::vector<CheckpointManifest> parts(static_cast<size_t>(writers));
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < writers; ++number) {
      threads.emplace_back([&, number] {
        const CheckpointWriter writer{number, writers};
        parts[static_cast<size_t>(number)] =
            write_part(shared.folder(), 1, streams_of(tensors, writer), writer, options);
      });
    }
  }
  CheckpointManifest written;
  written.block_bytes = options.block_bytes;
  for (CheckpointManifest& part : parts) add_part(written, std::move(part));
  CheckpointState state;
  state.step = 1;
  shared.commit(state, std::move(written), {});
}

void report_bytes(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

void measure_save(benchmark::State& state, int writers) {
  const CheckpointsFolder folder;
  const std::vector<Tensor> tensors = some_tensors();
  for (auto iteration : state) save(folder.path(), tensors, writers);
  report_bytes(state, kTensors * kRows * kColumns * 4);
}

/// Loads one of `parts` equal parts of the rows of each tensor, from the system's memory.
void measure_load(benchmark::State& state, int parts) {
  const CheckpointsFolder folder;
  save(folder.path(), some_tensors(), 1);
  const CheckpointReader reader(folder.path() / "step-00000001");
  const Mesh mesh(MeshSizes{.tensor = parts});
  const Distribution rows = Distribution(MeshView::dense).with(mesh.tensor(), sharded(0));
  const TensorPiece piece = parts == 1 ? TensorPiece(Shape{kRows, kColumns})
                                       : TensorPiece(mesh, rows, {kRows, kColumns}, parts - 1);
  std::vector<NamedTensor> targets;
  for (int i = 0; i < kTensors; ++i) {
    targets.push_back({"parameters", name_of(i), Tensor(piece.shape(), DType::f32), piece});
  }
  for (auto iteration : state) reader.load_each(targets, 1);
  report_bytes(state, kTensors * piece.shape().elements() * 4);
}

}  // namespace

void register_checkpoints() {
  const auto add = [](const std::string& name, auto measure, int number) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { measure(state, number); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("checkpoint/save/writers:1", measure_save, 1);
  add("checkpoint/save/writers:4", measure_save, kRanks);
  add("checkpoint/load/whole", measure_load, 1);
  add("checkpoint/load/quarter", measure_load, kRanks);
}

}  // namespace tessera
