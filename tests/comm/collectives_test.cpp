#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/any_pieces.h"
#include "comm/communicator.h"
#include "comm/ranks_and_values.h"

namespace tessera {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

RC_GTEST_PROP(Collectives, AllGatherPutsPiecesInTheirPlaces, ()) {
  const int size = any_group_size();
  const Whole whole = any_whole(size);
  const Tensor expected = random_tensor(whole.shape, any_moved_type(), any_seed());
  const PieceLayout layout = pieces_of(whole.shape, whole.type, size);
  const bool in_place = *rc::gen::arbitrary<bool>();
  std::vector<std::string> results(static_cast<size_t>(size));
  run_group(size, [&](Communicator& group) {
    const std::vector<int64_t> own = elements_of(whole, size, group.position());
    const Tensor to = random_tensor(whole.shape, expected.dtype(), 1);
    Tensor from = piece_of(expected, own);
    if (in_place && layout.is_contiguous(group.position()) && !own.empty()) {
      const Tensor place = to.view(own[0], from.shape());
      place.copy_from(from);
      from = place;
    }
    group.all_gather("whole", layout, from, to);
    results[static_cast<size_t>(group.position())] = bytes_of(to);
  });
  for (const std::string& result : results) RC_ASSERT(result == bytes_of(expected));
}

RC_GTEST_PROP(Collectives, ReduceScatterSumsInTheOrderOfTheRanks, ()) {
  const int size = any_group_size();
  const Whole whole = any_whole(size);
  const std::vector<Tensor> addends = random_tensors(size, whole.shape, any_sum_type(), any_seed());
  const PieceLayout layout = pieces_of(whole.shape, whole.type, size);
  const bool in_place = *rc::gen::arbitrary<bool>();
  std::vector<std::string> results(static_cast<size_t>(size));
  std::vector<std::string> expected(static_cast<size_t>(size));
  Tensor sum(whole.shape, addends[0].dtype());
  for (int64_t i = 0; i < sum.elements(); ++i) set(sum, i, sum_in_order(addends, i));
  run_group(size, [&](Communicator& group) {
    const auto position = static_cast<size_t>(group.position());
    const std::vector<int64_t> own = elements_of(whole, size, group.position());
    const Tensor from = copy_of(addends[position]);
    Tensor to = piece_of(from, own);
    if (in_place && layout.is_contiguous(group.position()) && !own.empty()) {
      to = from.view(own[0], to.shape());
    }
    group.reduce_scatter("gradient", layout, from, to);
    results[position] = bytes_of(to);
    expected[position] = bytes_of(piece_of(sum, own));
  });
  RC_ASSERT(results == expected);
}

/// The same on every rank and again on another run.
RC_GTEST_PROP(Collectives, AllReduceSumsInTheOrderOfTheRanks, ()) {
  const int size = any_group_size();
  const Shape shape{*rc::gen::element<int64_t>(0, 1, 3, 40, 5000)};
  const std::vector<Tensor> addends = random_tensors(size, shape, any_sum_type(), any_seed());
  const bool in_place = *rc::gen::arbitrary<bool>();
  Tensor expected(shape, addends[0].dtype());
  for (int64_t i = 0; i < expected.elements(); ++i) set(expected, i, sum_in_order(addends, i));
  for (int run = 0; run < 2; ++run) {
    std::vector<std::string> results(static_cast<size_t>(size));
    run_group(size, [&](Communicator& group) {
      const auto position = static_cast<size_t>(group.position());
      const Tensor from = copy_of(addends[position]);
      const Tensor to = in_place ? from : Tensor(shape, from.dtype());
      group.all_reduce("loss", from, to);
      results[position] = bytes_of(to);
      if (!in_place && bytes_of(from) != bytes_of(addends[position])) results[position] = "changed";
    });
    for (const std::string& result : results) RC_ASSERT(result == bytes_of(expected));
  }
}

TEST(Collectives, TheOrderOfTheGroupIsThatOfTheSum) {
  // In f32 the small number is lost, unless the large ones cancel each other first.
  const std::vector<float> of_ranks{1e8F, 1, -1e8F};
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, std::vector{2, 0, 1}}) {
    World world(3);
    std::vector<float> results(3);
    run_ranks(world, [&](int rank) {
      Communicator group = world.group(rank, order);
      const Tensor value(Shape{1}, DType::f32);
      set(value, 0, of_ranks[static_cast<size_t>(rank)]);
      group.all_reduce("sum", value, value);
      results[static_cast<size_t>(rank)] = static_cast<float>(get(value, 0));
    });
    const float expected = order[0] == 0 ? 0.0F : 1.0F;
    EXPECT_EQ(results, std::vector<float>(3, expected));
  }
}

TEST(Collectives, SumsOfBf16AreRoundedOnce) {
  // 1 + 2^-8 is no bf16 and rounds to 1; rounded after each addend, the sum would stay 1.
  std::vector<double> results(5);
  run_group(5, [&](Communicator& group) {
    const Tensor value(Shape{1}, DType::bf16);
    set(value, 0, group.position() == 0 ? 1.0 : 0x1p-8);
    group.all_reduce("sum", value, value);
    results[static_cast<size_t>(group.position())] = get(value, 0);
  });
  EXPECT_EQ(results, std::vector<double>(5, 1.0 + 0x1p-6));
}

RC_GTEST_PROP(Collectives, AllReduceFindsTheMaximum, ()) {
  const int size = any_group_size();
  const Shape shape{*rc::gen::inRange<int64_t>(0, 50)};
  const DType dtype = *rc::gen::element(DType::f64, DType::f32);
  const std::vector<Tensor> values = random_tensors(size, shape, dtype, any_seed());
  Tensor expected(shape, dtype);
  for (int64_t i = 0; i < expected.elements(); ++i) {
    double largest = get(values[0], i);
    for (const Tensor& value : values) largest = std::max(largest, get(value, i));
    set(expected, i, largest);
  }
  std::vector<std::string> results(static_cast<size_t>(size));
  run_group(size, [&](Communicator& group) {
    const auto position = static_cast<size_t>(group.position());
    group.all_reduce("scale", values[position], values[position], Reduction::maximum);
    results[position] = bytes_of(values[position]);
  });
  for (const std::string& result : results) RC_ASSERT(result == bytes_of(expected));
}

TEST(Collectives, AMaximumIsNotANumberIfOneOfThemIsNot) {
  for (int odd = 0; odd < 3; ++odd) {
    std::vector<int> results(3);
    run_group(3, [&](Communicator& group) {
      const Tensor value(Shape{1}, DType::f32);
      set(value, 0, group.position() == odd ? kNotANumber : group.position());
      group.all_reduce("scale", value, value, Reduction::maximum);
      results[static_cast<size_t>(group.position())] = std::isnan(get(value, 0)) ? 1 : 0;
    });
    EXPECT_EQ(results, std::vector<int>(3, 1)) << odd;
  }
}

RC_GTEST_PROP(Collectives, AllToAllExchangesBlocks, ()) {
  const int size = any_group_size();
  const int64_t block = *rc::gen::inRange<int64_t>(0, 5);
  const std::vector<Tensor> sources =
      random_tensors(size, Shape{size * block, 3}, any_moved_type(), any_seed());
  std::vector<Tensor> targets;
  for (int i = 0; i < size; ++i) targets.emplace_back(sources[0].shape(), sources[0].dtype());
  run_group(size, [&](Communicator& group) {
    const auto position = static_cast<size_t>(group.position());
    group.all_to_all("heads", sources[position], targets[position]);
  });
  for (int to = 0; to < size; ++to) {
    for (int from = 0; from < size; ++from) {
      for (int64_t i = 0; i < block * 3; ++i) {
        RC_ASSERT(get(targets[static_cast<size_t>(to)], from * block * 3 + i) ==
                  get(sources[static_cast<size_t>(from)], to * block * 3 + i));
      }
    }
  }
}

RC_GTEST_PROP(Collectives, AllToAllExchangesAnyNumberOfRows, ()) {
  const auto size = static_cast<size_t>(any_group_size());
  const int64_t width = *rc::gen::inRange<int64_t>(1, 5);
  const DType dtype = any_moved_type();
  std::vector<std::vector<int64_t>> sent(size, std::vector<int64_t>(size));
  std::vector<std::vector<int64_t>> received(size, std::vector<int64_t>(size));
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      sent[from][to] = *rc::gen::element<int64_t>(0, 0, 1, 2, 7);
      received[to][from] = sent[from][to];
    }
  }
  const int64_t most = static_cast<int64_t>(size) * 7 + 1;  // one row more than is ever sent
  const std::vector<Tensor> sources =
      random_tensors(static_cast<int>(size), Shape{most, width}, dtype, any_seed());
  std::vector<Tensor> targets;
  for (size_t i = 0; i < size; ++i) targets.push_back(random_tensor(Shape{most, width}, dtype, 7));
  run_group(static_cast<int>(size), [&](Communicator& group) {
    const auto own = static_cast<size_t>(group.position());
    group.all_to_all_rows("tokens", sources[own], sent[own], targets[own], received[own]);
  });
  const Tensor untouched = random_tensor(Shape{most, width}, dtype, 7);
  for (size_t to = 0; to < size; ++to) {
    int64_t row = 0;
    for (size_t from = 0; from < size; ++from) {
      int64_t source = 0;
      for (size_t before = 0; before < to; ++before) source += sent[from][before];
      for (int64_t i = 0; i < sent[from][to] * width; ++i) {
        RC_ASSERT(get(targets[to], row * width + i) == get(sources[from], source * width + i));
      }
      row += sent[from][to];
    }
    for (int64_t i = row * width; i < most * width; ++i) {
      RC_ASSERT(get(targets[to], i) == get(untouched, i));
    }
  }
}

RC_GTEST_PROP(Collectives, BroadcastGivesWhatTheRootHas, ()) {
  const int size = any_group_size();
  const int root = *rc::gen::inRange(0, size);
  const Shape shape{*rc::gen::inRange<int64_t>(0, 100)};
  const std::vector<Tensor> values = random_tensors(size, shape, any_moved_type(), any_seed());
  const std::string expected = bytes_of(values[static_cast<size_t>(root)]);
  run_group(size, [&](Communicator& group) {
    group.broadcast("weights", root, values[static_cast<size_t>(group.position())]);
  });
  for (const Tensor& value : values) RC_ASSERT(bytes_of(value) == expected);
}

TEST(Collectives, LargeAndEmptyTensorsPass) {
  for (const int64_t elements : {0, 300000}) {
    const std::vector<Tensor> addends = random_tensors(3, Shape{elements}, DType::f32, 5);
    Tensor sum(Shape{elements}, DType::f32);
    for (int64_t i = 0; i < elements; ++i) set(sum, i, sum_in_order(addends, i));
    std::vector<std::string> whole(3);
    run_group(3, [&](Communicator& group) {
      const auto position = static_cast<size_t>(group.position());
      const PieceLayout layout = even_pieces(elements, 3);
      const Tensor part(Shape{elements / 3}, DType::f32);
      const Tensor joined(Shape{elements}, DType::f32);
      group.reduce_scatter("gradient", layout, addends[position], part);
      group.all_gather("weight", layout, part, joined);
      group.broadcast("again", 1, joined);
      whole[position] = bytes_of(joined);
    });
    EXPECT_EQ(whole, std::vector<std::string>(3, bytes_of(sum)));
  }
}

}  // namespace
}  // namespace tessera
