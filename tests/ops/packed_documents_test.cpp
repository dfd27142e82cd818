#include "ops/attention/packed_documents.h"

#include <random>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "device/vendor.h"
#include "support/emulated.h"
#include "support/tested_devices.h"

namespace tessera::testing {
namespace {

using Numbers = std::vector<int32_t>;

struct PackingCase {
  int sequences = 1;
  int sequence = 1;
  int stretch = 1;

  int groups_per_sequence() const { return static_cast<int>(ceil_div(sequence, stretch)); }
  int groups() const { return sequences * groups_per_sequence(); }
};

/// What the kernel writes.
struct Packing {
  Numbers lengths;
  std::vector<Numbers> offsets;
  Numbers starts;

  bool operator==(const Packing&) const = default;
};

Bits bits_of(const Packing& packing) {
  return testing::bits_of(packing.lengths, packing.offsets[0], packing.offsets[1],
                          packing.offsets[2], packing.starts);
}

constexpr int kTestedWidths[PackedDocuments::kWidths] = {24, 8, 3};

/// Starts of documents that end after each token by chance, one of `length`.
Numbers random_starts(const PackingCase& test, int length, unsigned seed) {
  std::mt19937 random(seed);
  Numbers starts;
  for (int token = 0; token < test.sequences * test.sequence; ++token) {
    const int index = token % test.sequence;
    const bool begins = index == 0 || random() % static_cast<unsigned>(length) == 0;
    starts.push_back(begins ? index : starts.back());
  }
  return starts;
}

/// Token after token: a token belongs to the group in whose stretch its document starts.
Packing expected_packing(const PackingCase& test, const Numbers& document_starts) {
  Packing expected;
  expected.lengths.assign(static_cast<size_t>(test.groups()), 0);
  const auto group_of = [&](int token) {
    const int sequence = token / test.sequence;
    const int group = document_starts[static_cast<size_t>(token)] / test.stretch;
    return static_cast<size_t>(sequence) * static_cast<size_t>(test.groups_per_sequence()) +
           static_cast<size_t>(group);
  };
  const int tokens = test.sequences * test.sequence;
  for (int token = 0; token < tokens; ++token) ++expected.lengths[group_of(token)];
  for (const int width : kTestedWidths) {
    Numbers offsets{0};
    for (const int32_t length : expected.lengths) {
      offsets.push_back(offsets.back() + length * width);
    }
    expected.offsets.push_back(offsets);
  }
  expected.starts.assign(expected.lengths.size() * static_cast<size_t>(test.sequence), 0);
  for (int token = 0; token < tokens; ++token) {
    const size_t group = group_of(token);
    const int first = expected.offsets[0][group] / kTestedWidths[0];  // token of the group
    const int document =
        token / test.sequence * test.sequence + document_starts[static_cast<size_t>(token)];
    expected
        .starts[group * static_cast<size_t>(test.sequence) + static_cast<size_t>(token - first)] =
        document - first;
  }
  return expected;
}

/// Memory of a device, of exactly the bytes that are asked for.
class DeviceArrays {
 public:
  explicit DeviceArrays(const Emulation& device)
      : runtime_(make_runtime(host_target(1), device)),
        stream_(runtime_.accelerator()->make_stream()) {}

  Stream& stream() { return *stream_; }
  Tensor array(size_t count, DType dtype = DType::i32) {
    const Shape shape{static_cast<int64_t>(count)};
    memory_.push_back(runtime_.accelerator()->allocate(shape.elements() * dtype_size(dtype)));
    return Tensor::wrap(memory_.back()->address(), shape, dtype, runtime_.accelerator());
  }
  template <typename T>
  Tensor copied(const std::vector<T>& values) {
    Tensor result = array(values.size(), dtype_of<T>);
    upload(std::as_bytes(std::span(values)), result);
    return result;
  }
  template <typename T>
  std::vector<T> values(const Tensor& tensor) {
    stream_->synchronize();
    const Tensor host = on_host(tensor);
    const auto found = host.values<T>();
    return {found.begin(), found.end()};
  }

 private:
  Runtime runtime_;
  std::shared_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

Packing packed(const PackingCase& test, const Numbers& document_starts, const Emulation& device) {
  DeviceArrays memory(device);
  const auto groups = static_cast<size_t>(test.groups());
  const Tensor starts_of_documents = memory.copied(document_starts);
  const Tensor lengths = memory.array(groups);
  const Tensor offsets[] = {memory.array(groups + 1), memory.array(groups + 1),
                            memory.array(groups + 1)};
  const Tensor starts = memory.array(groups * static_cast<size_t>(test.sequence));
  const PackedDocuments documents{
      .groups = test.groups(),
      .groups_per_sequence = test.groups_per_sequence(),
      .sequence = test.sequence,
      .stretch = test.stretch,
      .widths = {kTestedWidths[0], kTestedWidths[1], kTestedWidths[2]},
      .document_starts = starts_of_documents.pointer<int32_t>(),
      .lengths = lengths.pointer<int32_t>(),
      .offsets = {offsets[0].pointer<int32_t>(), offsets[1].pointer<int32_t>(),
                  offsets[2].pointer<int32_t>()},
      .starts = starts.pointer<int32_t>()};
  for_vendor(memory.stream(), [&](auto vendor) {
    pack_documents_device<decltype(vendor)>(documents, memory.stream());
  });
  Packing found;
  found.lengths = memory.values<int32_t>(lengths);
  for (const Tensor& offset : offsets) found.offsets.push_back(memory.values<int32_t>(offset));
  found.starts = memory.values<int32_t>(starts);
  return found;
}

TEST(PackedDocuments, LieInGroupsOnDevices) {
  for (const PackingCase& test : {PackingCase{.sequences = 3, .sequence = 1, .stretch = 512},
                                  {.sequences = 2, .sequence = 700, .stretch = 512},
                                  {.sequences = 3, .sequence = 300, .stretch = 32},
                                  {.sequences = 1, .sequence = 513, .stretch = 64}}) {
    for (const int length : {1, 7, 90, 100000}) {
      const Numbers starts = random_starts(test, length, 7);
      const Packing expected = expected_packing(test, starts);
      expect_equal_bits_on_devices(
          32, [&](const Emulation& device) { return packed(test, starts, device); },
          [&](const Packing& found) {
            EXPECT_TRUE(found == expected)
                << test.sequences << " x " << test.sequence << ", documents of " << length;
          });
    }
  }
}

RC_GTEST_PROP(PackedDocuments, LieInGroupsOfAnyStretch, ()) {
  const PackingCase test{.sequences = *rc::gen::inRange(1, 4),
                         .sequence = *rc::gen::inRange(1, 150),
                         .stretch = *rc::gen::inRange(1, 60)};
  const Numbers starts =
      random_starts(test, *rc::gen::inRange(1, 80), *rc::gen::arbitrary<unsigned>());
  const int lanes = *rc::gen::element(32, 64);
  RC_ASSERT(packed(test, starts, {.lanes = lanes}) == expected_packing(test, starts));
}

TEST(PackedDocuments, HaveAsManyGroupsAsStretches) {
  const auto groups = [](int64_t sequences, int64_t sequence) {
    return DocumentGroups(sequences, sequence).count();
  };
  EXPECT_EQ(groups(4, 256), 4);
  EXPECT_EQ(groups(2, 512), 2);
  EXPECT_EQ(groups(2, 513), 4);
  EXPECT_EQ(groups(2, 4096), 16);
  EXPECT_EQ(groups(1, 8192), 16);
  EXPECT_EQ(groups(1, 131072), 16);  // at most 16 of a sequence
  EXPECT_EQ(groups(3, 8193), 48);
}

TEST(PackedDocuments, NumbersOfRowsGoToTokensAndBack) {
  const int sequences = 3, heads = 5, sequence = 70;
  std::vector<float> rows, tokens;
  for (int i = 0; i < sequences * heads * sequence; ++i) rows.push_back(static_cast<float>(i));
  for (int token = 0; token < sequences * sequence; ++token) {
    for (int head = 0; head < heads; ++head) {
      const int row = (token / sequence * heads + head) * sequence + token % sequence;
      tokens.push_back(static_cast<float>(row));
    }
  }
  for (const Emulation& device : every_device()) {
    SCOPED_TRACE(describe(device));
    DeviceArrays memory(device);
    const Tensor from = memory.copied(rows);
    const Tensor middle = memory.array(rows.size(), DType::f32);
    const Tensor back = memory.array(rows.size(), DType::f32);
    const auto numbers = [&](const Tensor& source, const Tensor& to) {
      return RowNumbers{.sequences = sequences,
                        .heads = heads,
                        .sequence = sequence,
                        .from = source.pointer<float>(),
                        .to = to.pointer<float>()};
    };
    for_vendor(memory.stream(), [&](auto vendor) {
      using Vendor = decltype(vendor);
      reorder_rows_device<Vendor>(numbers(from, middle), true, memory.stream());
      reorder_rows_device<Vendor>(numbers(middle, back), false, memory.stream());
    });
    EXPECT_EQ(memory.values<float>(middle), tokens);
    EXPECT_EQ(memory.values<float>(back), rows);
  }
}

}  // namespace
}  // namespace tessera::testing
