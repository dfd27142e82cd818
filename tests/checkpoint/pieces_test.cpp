// Checkpoints whose tensors lie in pieces, written by several and read by region.
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/inspect.h"
#include "checkpoint/save.h"
#include "checkpoint/verify_checkpoint.h"
#include "sample.h"
#include "support/error_of.h"
#include "support/names_in.h"
#include "support/save_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_in;

constexpr int kWriters = 3;
constexpr SaveOptions kSmallBlocks{.threads = 1, .block_bytes = 64};

/// Two tensors, of which each writer holds some regions.
class SavedPieces : public ::testing::Test {
 protected:
  SavedPieces() {
    saved_.add("parameters", "w", {12, 10}, DType::f32);
    saved_.add("parameters", "norm", {9}, DType::bf16);
    saved_.add("optimizer", "w", {12, 10}, DType::f64);
    saved_.fill(3);
  }

  /// The region of a tensor that a writer writes: columns of a matrix, all of a vector.
  static std::vector<Region> regions(const NamedTensor& item, int writer) {
    if (item.tensor.shape().rank() == 1) {
      return writer == 1 ? std::vector{Region{{{0, 9}}}} : std::vector<Region>{};
    }
    const int64_t columns = writer == 0 ? 2 : 4;
    const int64_t first = writer == 0 ? 0 : 4 * writer - 2;
    return {Region{{{0, 5}, {first, columns}}}, Region{{{5, 7}, {first, columns}}}};
  }
  std::vector<TensorToSave> streams(int writer) const {
    std::vector<TensorToSave> streams;
    for (const NamedTensor& item : saved_.items()) {
      streams.push_back({item.group, item.name, item.tensor.dtype(), item.tensor.shape(), {}});
      for (const Region& region : regions(item, writer)) {
        streams.back().pieces.push_back(
            piece_to_save(region, TensorPiece(item.tensor.shape()), item.tensor));
      }
    }
    return streams;
  }
  CheckpointManifest written(const fs::path& folder, int writer, int64_t step = 4) const {
    return write_part(folder, step, streams(writer), {writer, kWriters}, kSmallBlocks);
  }
  fs::path save() const {
    SharedSave save(folder_.path(), 4);
    CheckpointManifest all;
    all.block_bytes = kSmallBlocks.block_bytes;
    for (int writer = 0; writer < kWriters; ++writer) {
      add_part(all, written(save.folder(), writer));
    }
    const std::vector<CarriedFile> carried{{"tokenizer.json", "{}"}};
    return save.commit(sample_state(4), std::move(all), carried);
  }

  TemporaryFolder folder_;
  SampleTensors saved_;
};

TEST_F(SavedPieces, ComeBackWhole) {
  const fs::path path = save();
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("step-00000004"));
  EXPECT_THAT(names_in(path),
              ElementsAre("config.toml", "manifest.json", "optimizer-rank-00000.safetensors",
                          "optimizer-rank-00001.safetensors", "optimizer-rank-00002.safetensors",
                          "parameters-rank-00000.safetensors", "parameters-rank-00001.safetensors",
                          "parameters-rank-00002.safetensors", "tokenizer.json"));
  EXPECT_TRUE(verify_checkpoint(path).ok()) << verify_checkpoint(path).text();
  const CheckpointReader reader(path);
  ASSERT_EQ(reader.manifest().tensors.size(), 3U);
  EXPECT_EQ(reader.manifest().tensors[0].pieces.size(), 6U);
  EXPECT_EQ(reader.manifest().tensors[1].pieces.size(), 1U);
  SampleTensors loaded = saved_.empty_copy();
  load_all(reader, loaded.items(), 2);
  EXPECT_TRUE(loaded.same_bytes(saved_));
  const SafetensorsReader file(path / "parameters-rank-00001.safetensors");
  ASSERT_NE(file.find("w[5:12, 2:6]"), nullptr);
  EXPECT_THAT(file.find("w[5:12, 2:6]")->shape, ElementsAre(7, 4));
  EXPECT_NE(file.find("norm"), nullptr);
  EXPECT_THAT(inspect_checkpoint(path), HasSubstr("several"));
}

TEST_F(SavedPieces, AreReadInTheOrderOfTheWhole) {
  const CheckpointReader reader(save());
  for (const NamedTensor& item : saved_.items()) {
    const CheckpointTensor& tensor = *reader.find(item.group, item.name);
    const int64_t size = dtype_size(tensor.dtype);
    for (int64_t first = 0; first < tensor.shape.elements(); first += 7) {
      for (int64_t count = 1; first + count <= tensor.shape.elements(); count += 5) {
        std::string found;
        reader.read_chunks(tensor, first * size, count * size, [&](std::span<std::byte> bytes) {
          found.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        });
        const auto* expected = reinterpret_cast<const char*>(item.tensor.raw() + first * size);
        ASSERT_EQ(found, std::string(expected, expected + count * size)) << item.label();
      }
    }
  }
}

/// The pieces that the ranks of some meshes have.
std::vector<TensorPiece> some_pieces() {
  std::vector<TensorPiece> pieces{TensorPiece(Shape{12, 10})};
  const Mesh mesh(MeshSizes{.tensor = 2, .context = 3});
  const Distribution all(MeshView::dense);
  const Distribution columns = all.with(mesh.tensor(), sharded(1));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    for (const Distribution& distribution : {all.with(mesh.tensor(), sharded(0)), columns,
                                             columns.with(mesh.context(), sharded(0, {}, 0, 2))}) {
      pieces.emplace_back(mesh, distribution, Shape{12, 10}, rank);
    }
  }
  return pieces;
}

TEST_F(SavedPieces, AreReadByRegionAndWhatIsReadIsVerifiedAndNoMore) {
  const fs::path path = save();
  const CheckpointReader intact(path);
  const CheckpointTensor& tensor = *intact.find("parameters", "w");
  const NamedTensor& whole = saved_.items()[0];
  int noticed = 0, unnoticed = 0;
  for (const TensorPiece& piece : some_pieces()) {
    const auto load = [&](const CheckpointReader& reader) {
      const Tensor to(piece.shape(), DType::f32);
      reader.load({"parameters", "w", to, piece});
      return to;
    };
    const Tensor expected(piece.shape(), DType::f32);
    piece.copy_from(whole.tensor, expected);
    const Tensor loaded = load(intact);
    ASSERT_EQ(std::memcmp(loaded.raw(), expected.raw(), static_cast<size_t>(expected.bytes())), 0);

    std::set<int64_t> wanted;
    for (int64_t i = 0; i < piece.shape().elements(); ++i) wanted.insert(piece.element_of_whole(i));
    for (const SavedPiece& stored : tensor.pieces) {
      const std::string content = read_file(path / stored.file);
      const SafetensorsReader file(path / stored.file);
      const SafetensorsEntry& entry = *file.find(tensor.entry_name(stored.region));
      // By block, whether it has an element that is asked for.
      std::vector<bool> needed(stored.hashes.size());
      const Shape shape = stored.region.shape();
      for (int64_t i = 0; i < shape.elements(); ++i) {
        const int64_t row = stored.region.dims[0].begin + i / shape[1];
        const int64_t column = stored.region.dims[1].begin + i % shape[1];
        if (wanted.contains(row * 10 + column)) needed[static_cast<size_t>(i * 4 / 64)] = true;
      }
      for (int64_t byte = 0; byte < entry.bytes(); byte += 13) {
        const auto at = static_cast<size_t>(file.header_bytes() + entry.begin + byte);
        put(path / stored.file, flipped(content, at, 3));
        const CheckpointReader damaged(path);
        const bool is_needed = needed[static_cast<size_t>(byte / 64)];
        if (is_needed) {
          ++noticed;
          EXPECT_THROW(load(damaged), DamagedCheckpoint);
          EXPECT_THAT(error_of([&] { load(damaged); }),
                      AllOf(HasSubstr(stored.file), HasSubstr(stored.region.text())));
        } else {
          ++unnoticed;
          EXPECT_NO_THROW(load(damaged));
        }
      }
      put(path / stored.file, content);
    }
  }
  EXPECT_GT(noticed, 100);
  EXPECT_GT(unnoticed, 100);
}

TEST_F(SavedPieces, AreWidenedAsWholeTensorsAre) {
  SampleTensors narrow;
  narrow.add("parameters", "w", {12, 10}, DType::bf16);
  narrow.fill(5);
  const CheckpointReader reader(
      save_checkpoint(folder_ / "narrow", sample_state(1), narrow.items(), {}, kSmallBlocks));
  for (const TensorPiece& piece : some_pieces()) {
    const Tensor own(piece.shape(), DType::bf16), expected(piece.shape(), DType::f32),
        loaded(piece.shape(), DType::f32);
    piece.copy_from(narrow.items()[0].tensor, own);
    convert(own, expected);
    reader.load({"parameters", "w", loaded, piece});
    EXPECT_EQ(std::memcmp(loaded.raw(), expected.raw(), static_cast<size_t>(loaded.bytes())), 0);
  }
}

TEST_F(SavedPieces, ThatDoNotMakeATensorAreNotCommitted) {
  SharedSave save(folder_.path(), 4);
  const auto commit = [&](std::vector<CheckpointManifest> parts) {
    CheckpointManifest all;
    all.block_bytes = kSmallBlocks.block_bytes;
    for (CheckpointManifest& part : parts) add_part(all, std::move(part));
    save.commit(sample_state(4), std::move(all), {});
  };
  const CheckpointManifest first = written(save.folder(), 0);
  const CheckpointManifest second = written(save.folder(), 1);
  const CheckpointManifest third = written(save.folder(), 2);
  EXPECT_THROW(commit({first, second}), InternalError);          // a piece is missing
  EXPECT_THROW(commit({first, second, second}), InternalError);  // one is there twice
  CheckpointManifest other = third;
  other.tensors[0].dtype = DType::f64;
  EXPECT_THROW(commit({first, second, other}), InternalError);
  fs::remove(save.folder() / "parameters-rank-00002.safetensors");
  EXPECT_THAT(error_of([&] {
                commit({first, second, third});
              }),
              HasSubstr("parameters-rank-00002.safetensors is missing"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("step-00000004.partial"));
}

TEST_F(SavedPieces, OfTwoStepsAreNotTakenForOne) {
  const fs::path path = save();
  const fs::path other = folder_ / "other";
  fs::create_directory(other);
  written(other, 1, 5);
  fs::copy_file(other / "parameters-rank-00001.safetensors",
                path / "parameters-rank-00001.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_FALSE(verify_checkpoint(path).ok());
  SampleTensors loaded = saved_.empty_copy();
  EXPECT_THAT(error_of([&] { load_all(CheckpointReader(path), loaded.items()); }),
              AllOf(HasSubstr("parameters-rank-00001.safetensors"), HasSubstr("damaged header")));
}

TEST_F(SavedPieces, AMissingFileIsNamed) {
  const fs::path path = save();
  fs::remove(path / "optimizer-rank-00002.safetensors");
  EXPECT_THAT(error_of([&] { CheckpointReader reader(path); }),
              HasSubstr("optimizer-rank-00002.safetensors is missing"));
  EXPECT_THAT(verify_checkpoint(path).text(), HasSubstr("optimizer-rank-00002.safetensors"));
}

TEST(BlockHash, HashesEachBlockHoweverTheBytesCome) {
  std::string bytes(1000, ' ');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 % 251);
  for (const int64_t block : {int64_t{8}, int64_t{64}, int64_t{1000}, int64_t{1008}, kOneBlock}) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{1000}}) {
      std::vector<uint64_t> expected;
      for (size_t at = 0; at == 0 || at < length; at += static_cast<size_t>(block)) {
        expected.push_back(
            hash(std::string_view(bytes).substr(0, length).substr(at, static_cast<size_t>(block))));
        if (block > 1000) break;
      }
      for (const size_t step : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}}) {
        BlockHash hashes(block);
        for (size_t at = 0; at < length; at += step) {
          const std::string_view part =
              std::string_view(bytes).substr(at, std::min(step, length - at));
          hashes.update(std::as_bytes(std::span(part)));
        }
        EXPECT_EQ(hashes.finish(), expected) << block << " " << length << " " << step;
      }
      EXPECT_EQ(block_count(static_cast<int64_t>(length), block), std::ssize(expected));
    }
  }
}

}  // namespace
}  // namespace tessera
