#include "comm/mpi/mpi_moves_mpi.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace tessera {
namespace {

/// The most ranks of a group in which each rank sends its small block to each other.
constexpr int kMostDirect = 8;
/// The most bytes of a block that is sent so.
constexpr int64_t kDirectBytes = int64_t{64} << 10;
/// The most bytes of a block that other ranks pass on, in larger groups.
constexpr int64_t kForwardedBytes = 2048;
/// The most bytes that go along a tree, and the least of a segment.
constexpr int64_t kTreeBytes = int64_t{64} << 10;
constexpr int64_t kSegmentBytes = int64_t{256} << 10;
constexpr int64_t kMostSegments = 256;

void copy(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void gather_directly(MpiGroup& group, const Fingerprint& mark, std::byte* own, std::byte* memory,
                     std::span<const ByteBlock> blocks) {
  const int64_t own_bytes = blocks[static_cast<size_t>(group.position())].bytes;
  std::array<MpiPiece, kMostDirect> sends, receives;
  const auto others = static_cast<size_t>(group.size() - 1);
  for (int distance = 1; distance < group.size(); ++distance) {
    const int from = (group.position() + distance) % group.size();
    const int to = (group.position() + group.size() - distance) % group.size();
    const ByteBlock& block = blocks[static_cast<size_t>(from)];
    const auto index = static_cast<size_t>(distance - 1);
    receives[index] = {from, memory + block.offset, block.bytes};
    sends[index] = {to, own, own_bytes};
  }
  group.exchange(mark, std::span(sends).first(others), std::span(receives).first(others));
}

void gather_in_ring(MpiGroup& group, const Fingerprint& mark, std::byte* own, std::byte* memory,
                    std::span<const ByteBlock> blocks) {
  const int size = group.size();
  const int next = (group.position() + 1) % size;
  const int previous = (group.position() + size - 1) % size;
  for (int step = 0; step + 1 < size; ++step) {
    const auto block_at = [&](int distance) {
      const int position = (group.position() + 2 * size - distance) % size;
      return blocks[static_cast<size_t>(position)];
    };
    const ByteBlock sent = block_at(step);
    const ByteBlock received = block_at(step + 1);
    const MpiPiece send{next, step == 0 ? own : memory + sent.offset, sent.bytes};
    const MpiPiece receive{previous, memory + received.offset, received.bytes};
    group.exchange(mark, std::span(&send, 1), std::span(&receive, 1));
  }
}

/// Gathers blocks in slots of `bytes` bytes. The slot of a rank is its distance from this rank.
void gather_in_rounds(MpiGroup& group, const Fingerprint& mark, const std::byte* own,
                      std::byte* memory, std::span<const ByteBlock> blocks, int64_t bytes) {
  const int size = group.size();
  std::byte* const slots = group.arrived().bytes(size * bytes);
  copy(own, blocks[static_cast<size_t>(group.position())].bytes, slots);
  std::vector<MPI_Request> requests;
  for (int distance = 1; distance < size; distance *= 2) {
    const int64_t moved = std::min(distance, size - distance) * bytes;
    group.receive(group.call_hash(),
                  {(group.position() + distance) % size, slots + distance * bytes, moved},
                  requests);
    group.send(group.call_hash(), {(group.position() + size - distance) % size, slots, moved},
               requests);
    group.wait(mark, requests, moved);
  }
  for (int distance = 1; distance < size; ++distance) {
    const ByteBlock& block = blocks[static_cast<size_t>((group.position() + distance) % size)];
    copy(slots + distance * bytes, block.bytes, memory + block.offset);
  }
}

// In a broadcast, `place` is a rank's distance from the root.

/// Broadcasts along a binomial tree. A rank receives from the rank whose place lacks the lowest bit
/// of its own, and sends to the ranks whose places have one lower bit more.
void broadcast_in_tree(MpiGroup& group, const Fingerprint& mark, std::byte* memory, int64_t bytes,
                       int root) {
  const int size = group.size();
  const int place = (group.position() + size - root) % size;
  const auto peer_at = [&](int other) { return (other + root) % size; };
  std::vector<MPI_Request> requests;
  if (place > 0) {
    group.receive(group.call_hash(), {peer_at(place & (place - 1)), memory, bytes}, requests);
    group.wait(mark, requests, bytes);
  }
  const int lowest =
      place > 0 ? place & -place : static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)));
  for (int bit = lowest / 2; bit > 0; bit /= 2) {
    if (place + bit >= size) continue;
    group.send(group.call_hash(), {peer_at(place + bit), memory, bytes}, requests);
  }
  if (!requests.empty()) group.wait(mark, requests, bytes);
}

/// Broadcasts from rank to rank, in segments.
void broadcast_in_chain(MpiGroup& group, const Fingerprint& mark, std::byte* memory, int64_t bytes,
                        int root) {
  const int size = group.size();
  const int place = (group.position() + size - root) % size;
  const int before = (group.position() + size - 1) % size;
  const int next = (group.position() + 1) % size;
  const int64_t segment = std::max(kSegmentBytes, bytes / kMostSegments);
  std::vector<std::vector<MPI_Request>> receives;
  std::vector<MPI_Request> sends;
  for (int64_t begin = 0; begin < bytes && place > 0; begin += segment) {
    group.receive(group.call_hash(), {before, memory + begin, std::min(segment, bytes - begin)},
                  receives.emplace_back());
  }
  size_t arrived = 0;
  for (int64_t begin = 0; begin < bytes; begin += segment) {
    const int64_t moved = std::min(segment, bytes - begin);
    if (place > 0) group.wait(mark, receives[arrived++], moved);
    if (place + 1 < size) group.send(group.call_hash(), {next, memory + begin, moved}, sends);
  }
  group.wait(mark, sends, bytes);
}

}  // namespace

void gather_blocks(MpiGroup& group, const Fingerprint& mark, std::byte* own, std::byte* memory,
                   std::span<const ByteBlock> blocks) {
  const int64_t most = std::ranges::max(blocks, {}, &ByteBlock::bytes).bytes;
  if (group.size() == 2 || (group.size() <= kMostDirect && most <= kDirectBytes)) {
    gather_directly(group, mark, own, memory, blocks);
  } else if (most <= kForwardedBytes) {
    gather_in_rounds(group, mark, own, memory, blocks, most);
  } else {
    gather_in_ring(group, mark, own, memory, blocks);
  }
}

void broadcast_bytes(MpiGroup& group, const Fingerprint& mark, std::byte* memory, int64_t bytes,
                     int root) {
  if (group.size() == 2 || bytes <= kTreeBytes) {
    broadcast_in_tree(group, mark, memory, bytes, root);
  } else {
    broadcast_in_chain(group, mark, memory, bytes, root);
  }
}

void meet_all(MpiGroup& group, const Fingerprint& mark) {
  std::vector<std::byte> memory(static_cast<size_t>(group.size()));
  std::vector<ByteBlock> blocks;
  for (int position = 0; position < group.size(); ++position) blocks.push_back({position, 1});
  gather_blocks(group, mark, &memory[static_cast<size_t>(group.position())], memory.data(), blocks);
}

}  // namespace tessera
