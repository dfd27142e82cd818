#include <cstdlib>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "benchmarks.h"
#include "data/prepare.h"
#include "data/shards/split_reader.h"

namespace tessera {
namespace {

/// A folder of prepared data, 64 MB of tokens, removed at the end.
class PreparedFolder {
 public:
  explicit PreparedFolder(int64_t context) {
    std::string pattern = (fs::temp_directory_path() / "tessera-rows-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    const CounterRandom random(1, "text");
    std::string text;
    for (uint64_t i = 0; i < (1 << 25); ++i) {
      text += static_cast<char>('a' + random.bits(i) % 26);
    }
    write_file(folder_ / "text.txt", text);
    prepare({.inputs = {(folder_ / "text.txt").string()},
             .tokenizer = "bytes",
             .context = context,
             .output = folder_ / "data",
             .progress = false},
            Logger());
  }
  ~PreparedFolder() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  PreparedFolder(const PreparedFolder&) = delete;
  PreparedFolder& operator=(const PreparedFolder&) = delete;

  fs::path data() const { return folder_ / "data"; }

 private:
  fs::path folder_;
};

/// Reads the rows of the training split in order, as the loader does, from the system's memory.
void read_rows(benchmark::State& state, int64_t context) {
  const PreparedFolder folder(context);
  const SplitReader reader(folder.data(), Split::train);
  std::vector<int32_t> row(static_cast<size_t>(context));
  int64_t instance = 0;
  for (auto iteration : state) {
    reader.read(instance, row);
    benchmark::DoNotOptimize(row.data());
    if (++instance == reader.instances()) instance = 0;
  }
  state.SetItemsProcessed(state.iterations() * context);
}

}  // namespace

void register_prepared_rows() {
  for (const int64_t context : {256, 2048}) {
    benchmark::RegisterBenchmark(("prepared_rows/" + std::to_string(context)).c_str(),
                                 [context](benchmark::State& state) { read_rows(state, context); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace tessera
